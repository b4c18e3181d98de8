// The agent at work: pictures as they come, or MuJoCo's own viewer in a frame. Nothing is sent to a hidden page.

import { count, decimal } from "./format.js";

const at = (id) => document.getElementById(id);

export function showAgent(run) {
  let socket = null;
  let wanted = false;

  function open() {
    wanted = true;
    socket = new WebSocket(new URL("agent", location.href.replace(/^http/, "ws")));
    socket.binaryType = "blob";
    socket.onmessage = ({ data }) => (typeof data === "string" ? caption(JSON.parse(data)) : picture(data));
    socket.onclose = () => setTimeout(() => wanted && !run.ended && open(), 700);
  }

  function follow() {
    if (!document.hidden && !wanted) open();
    else if (document.hidden && wanted) {
      wanted = false;
      socket.close();
      at("stage").querySelector("iframe")?.remove();
    }
  }

  document.addEventListener("visibilitychange", follow);
  follow();
}

/** The run is over: its last picture stays, and MuJoCo's viewer, which would look for its server for ever, rests. */
export function endAgent() {
  at("stage").querySelector("iframe")?.contentWindow?.rest?.();
}

function picture(blob) {
  const stage = at("stage");
  let image = stage.querySelector("img");
  if (!image) {
    image = Object.assign(document.createElement("img"), { alt: "the agent in its environment" });
    stage.replaceChildren(image);
  }
  const url = URL.createObjectURL(blob);
  image.onload = image.onerror = () => URL.revokeObjectURL(url);
  image.src = url;
}

function caption(about) {
  const stage = at("stage");
  stage.dataset.mode = about.mode;
  if (about.mode === "viewer" && !stage.querySelector("iframe")) {
    const frame = Object.assign(document.createElement("iframe"), { src: "viewer/index.html", title: "the agent in its environment" });
    stage.replaceChildren(frame);
  }
  const parts = [];
  if (about.mode === "none") {
    // the last picture stays, as after a restart of the page's server
    if (stage.querySelector("img, iframe")) parts.push(about.why);
    else stage.replaceChildren(Object.assign(document.createElement("p"), { className: "muted", textContent: about.why }));
  }
  if (about.waiting) parts.push(about.waiting);
  if (about.version != null) {
    parts.push(about.version ? `policy ${count(about.version)}` : "random actions, before the first policy");
    if (about.env_steps) parts.push(`of ${count(about.env_steps)} env steps`);
    parts.push(`step ${count(about.steps)}`, about.broken ? "broken off: the environment failed" : `return ${decimal(about.return)}`);
  }
  at("caption").textContent = parts.join(" · ") || "\u00a0";
}
