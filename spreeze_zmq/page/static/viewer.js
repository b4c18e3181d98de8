// MuJoCo's viewer asks for streams at the root of its server; here they stand below the run's token.

const below = location.pathname.replace(/[^/]*$/, "");
const Plain = WebSocket;
window.WebSocket = class extends Plain {
  constructor(address, protocols) {
    const url = new URL(address, location.href);
    url.pathname = below + url.pathname.slice(1);
    super(url, protocols ?? []);
  }
};
