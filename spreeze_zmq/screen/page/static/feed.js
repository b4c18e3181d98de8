// The connection to the run's server. It is made again where it is lost, or where nothing comes over it, until the run
// is over or another one has its address.

import { clock, endedBy } from "./format.js";

/** The server says something every five seconds, but for half a minute in which it sends the story so far. */
const SILENT_MS = 15_000;
const STORY_MS = 45_000;
/** The run says something with each status; one of many processes has half as many. */
const STATUSES = 3;
/** Until the next try: after a connection was lost, at most, and once nobody has answered for `AWAY_MS`. */
const SOON_MS = 300;
const LONGEST_MS = 5_000;
const AWAY_MS = 60_000;
const RARELY_MS = 30_000;
const LOOK_MS = 1_000;

export class Feed {
  /** `page` has `begin` for a run from its beginning, `change` for whatever changes it, `allow` for a connection that is made
      or lost, and `notice` for what is to be said. */
  constructor(run, page) {
    Object.assign(this, { run, page, delay_ms: SOON_MS, lost_ms: null });
    this.connect();
    setInterval(() => this.watch(), LOOK_MS);
  }

  /** Send a wish to the run; returns whether there is a connection that takes it. */
  ask(wish) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(wish));
    return true;
  }

  connect() {
    const own = new WebSocket(new URL("feed", location.href.replace(/^http/, "ws")));
    Object.assign(this, { socket: own, opened: false, hasStory: false, heard_ms: performance.now() });
    own.onopen = () => this.open();
    own.onmessage = ({ data }) => this.hear(JSON.parse(data));
    own.onclose = () => this.lose();
  }

  open() {
    const now_ms = performance.now();
    Object.assign(this, { opened: true, heard_ms: now_ms, told_ms: now_ms, lost_ms: null, delay_ms: SOON_MS });
    this.run.lost = "";
    this.page.notice("");
    this.page.allow(true);
    this.page.change();
  }

  /** Take what the server says: entries of the run, or none, which says that the connection holds. */
  hear(entries) {
    this.heard_ms = performance.now();
    if (!entries.length) return;
    if (this.run.lost || !this.hasStory) this.page.notice("");
    Object.assign(this, { told_ms: this.heard_ms, hasStory: true });
    this.run.lost = "";
    for (const entry of entries) if (this.run.take(entry)) this.page.begin();
    this.page.change();
  }

  /** Whether something came lately: a machine that slept, or a tunnel whose other end is gone, closes no connection. */
  watch() {
    const { run, socket } = this;
    if (!socket) return;
    const now_ms = performance.now();
    if (now_ms - this.heard_ms > (this.hasStory ? SILENT_MS : STORY_MS)) return this.lose(true);
    if (!this.opened || now_ms - this.told_ms <= this.patience_ms()) return;
    const since = clock((now_ms - this.told_ms) / 1000);
    if (!this.hasStory) this.page.notice(`The record of the run is being read, for ${since} by now`);
    else if (run.about.live && !run.ended) {
      run.lost = "silent";
      this.page.notice(`The run has said nothing for ${since}: it stands still, or its broker does`);
      this.page.change();
    }
  }

  /** How long the server may tell nothing of the run before that is said. */
  patience_ms() {
    const { status_interval_s = 0 } = (this.hasStory && this.run.about?.components?.broker?.options) || {};
    return Math.max(SILENT_MS, STATUSES * 1000 * status_interval_s);
  }

  /** The connection is lost, or silent; it may never be closed then. */
  async lose(silent = false) {
    const { run, page, socket, opened } = this;
    Object.assign(socket, { onopen: null, onmessage: null, onclose: null });
    socket.close();
    this.socket = null;
    run.lost = "not connected";
    page.allow(false);
    page.change();
    const again = `spreeze view ${run.about?.run_dir || "RUN"}`;
    if (run.ended) return page.notice(`The run is over after ${clock(run.status?.t_s ?? 0)}: ${endedBy(run)}. To look again: ${again}`);
    const now_ms = performance.now();
    this.lost_ms ??= now_ms;
    const status = opened ? null : await answered();
    if (status === 403) return page.notice(`Another run has this address now; its terminal names its own. To look at this one: ${again}`);
    const away = !opened && status !== 200 && now_ms - this.lost_ms > AWAY_MS;
    if (away) page.notice(`No run answers here any more. If it has ended: ${again}`);
    else page.notice(silent ? "Nothing comes from the run any more; connecting again" : "The connection is lost; trying again");
    this.delay_ms = opened ? SOON_MS : Math.min(2 * this.delay_ms, LONGEST_MS);
    setTimeout(() => this.connect(), away ? RARELY_MS : this.delay_ms);
  }
}

/** The status with which the page itself would come from its address now; null where nobody answers. */
const answered = () =>
  fetch("", { cache: "no-store", signal: AbortSignal.timeout(10_000) }).then(
    ({ status }) => status,
    () => null,
  );
