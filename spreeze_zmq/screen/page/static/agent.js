// The agent at work: pictures as they come, or MuJoCo's own viewer in a frame. Nothing is sent to a hidden page.

import { count, decimal, element } from "./format.js";

const AGAIN_MS = 700;
const at = (id) => document.getElementById(id);

export class Agent {
  constructor(run) {
    Object.assign(this, { run, there: false, socket: null, url: null });
    document.addEventListener("visibilitychange", () => this.follow());
  }

  /** The run's server is there, or no longer: only then is it asked for the agent, also by MuJoCo's viewer. */
  allow(there) {
    this.there = there;
    if (there) this.dropViewer();
    else this.rest();
    this.follow();
  }

  follow() {
    const { run, there, socket } = this;
    const wanted = there && !document.hidden && !run.ended;
    if (wanted && !socket) this.open();
    else if (!wanted && socket) {
      this.close();
      if (document.hidden && !run.ended) this.dropViewer();
    }
  }

  open() {
    const own = new WebSocket(new URL("agent", location.href.replace(/^http/, "ws")));
    this.socket = own;
    own.binaryType = "blob";
    own.onmessage = ({ data }) => (typeof data === "string" ? caption(JSON.parse(data)) : this.picture(data));
    own.onclose = () => setTimeout(() => this.socket === own && this.open(), AGAIN_MS);
  }

  close() {
    Object.assign(this.socket, { onmessage: null, onclose: null });
    this.socket.close();
    this.socket = null;
  }

  /** Take MuJoCo's viewer off the stage: it has connections of its own. */
  dropViewer() {
    at("stage").querySelector("iframe")?.remove();
  }

  /** Have MuJoCo's viewer keep what it shows: it would look for its server for ever. */
  rest() {
    at("stage").querySelector("iframe")?.contentWindow?.rest?.();
  }

  /** The run is over: what was shown last stays. */
  end() {
    this.rest();
    this.follow();
    const isEmpty = !at("stage").querySelector("img, iframe") && at("stage").dataset.mode !== "none";
    if (isEmpty) say("the run is over: spreeze view shows its best policy at work");
  }

  picture(blob) {
    const stage = at("stage");
    let image = stage.querySelector("img");
    if (!image) {
      image = element("img", { alt: "the agent in its environment" });
      stage.replaceChildren(image);
    }
    const before = this.url;
    this.url = image.src = URL.createObjectURL(blob);
    if (before) URL.revokeObjectURL(before); // also that of a picture that another one has replaced while it loaded
  }
}

const say = (text) => at("stage").replaceChildren(element("p", { class: "muted" }, text));

function caption(about) {
  const stage = at("stage");
  stage.dataset.mode = about.mode;
  if (about.mode === "viewer" && !stage.querySelector("iframe"))
    stage.replaceChildren(element("iframe", { src: "viewer/index.html", title: "the agent in its environment" }));
  const parts = [];
  if (about.mode === "none") {
    // the last picture stays, as after a restart of the page's server
    if (stage.querySelector("img, iframe")) parts.push(about.why);
    else say(about.why);
  }
  if (about.waiting) parts.push(about.waiting);
  if (about.version != null) {
    parts.push(about.version ? `policy ${count(about.version)}` : "random actions, before the first policy");
    if (about.env_steps) parts.push(`of ${count(about.env_steps)} env steps`);
    parts.push(`step ${count(about.steps)}`, about.broken ? "broken off: the environment failed" : `return ${decimal(about.return)}`);
  }
  at("caption").textContent = parts.join(" · ") || "\u00a0";
}
