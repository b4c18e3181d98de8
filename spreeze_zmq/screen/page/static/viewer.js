// MuJoCo's viewer asks for streams at the root of its server; here they stand below the run's token.

const below = location.pathname.replace(/[^/]*$/, "");
const Plain = WebSocket;
let rests = false;
window.WebSocket = class extends Plain {
  constructor(address, protocols) {
    if (rests) return Object.assign(new EventTarget(), { readyState: Plain.CONNECTING, send() {}, close() {} });
    const url = new URL(address, location.href);
    url.pathname = below + url.pathname.slice(1);
    super(url, protocols ?? []);
  }
};

/** The run's server is gone: what was drawn last stays as it is. */
window.rest = () => (rests = true);

// It draws as often as the screen is renewed. Where that takes the processor and not a graphics card, the run that
// is looked at would starve: after a slow frame it rests for several times as long.

const SLOW_MS = 30;
const REST = 6;
const LONGEST_REST_MS = 700;
const ask = window.requestAnimationFrame.bind(window);
let frame_ms = 0;

window.requestAnimationFrame = (draw) => {
  const next = () =>
    ask((now) => {
      if (rests) return;
      const began = performance.now();
      draw(now);
      ask(() => (frame_ms = performance.now() - began));
    });
  if (frame_ms <= SLOW_MS) return next();
  return setTimeout(next, Math.min(REST * frame_ms, LONGEST_REST_MS));
};
