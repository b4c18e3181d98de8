// The run's processes and channels as they are: a card for each role, an arrow for each channel that carries data.

import { bytes, element, hasEnded, isOver, percent, plain, short } from "./format.js";

const CONTROL = new Set(["report", "control", "feed"]);
const MANY = 12;
const SVG = "http://www.w3.org/2000/svg";

export class Flow {
  constructor(place, run) {
    this.place = place;
    this.run = run;
  }

  /** A card for each role of this run. */
  begin() {
    const { components } = this.run.about;
    this.arrows = document.createElementNS(SVG, "svg");
    this.arrows.setAttribute("aria-hidden", "true");
    this.cards = new Map();
    for (const [role, component] of Object.entries(components)) {
      const { device } = component.options;
      const head = element("h3", {}, plain(role), element("small", { class: "muted" }, device && device !== "cpu" ? ` · ${device}` : ""));
      const card = element("div", { class: `role ${role}`, "data-role": role }, head, element("div", { class: "processes" }), element("p", { class: "muted small" }));
      this.cards.set(role, card);
    }
    this.place.replaceChildren(this.arrows, ...this.cards.values());
  }

  draw() {
    const status = hasEnded(this.run) ? null : this.run.status; // its last shares are of a time in which it ended
    for (const [role, card] of this.cards) this.drawCard(role, card, status);
    this.drawArrows(status);
  }

  drawCard(role, card, status) {
    const living = Object.entries(status?.processes ?? {}).filter(([, process]) => process.role === role);
    living.sort(([a], [b]) => indexOf(a) - indexOf(b));
    const awaited = hasEnded(this.run) ? [] : [...this.run.gone];
    const gone = awaited.filter(([name, how]) => name.startsWith(`${role}-`) && how.restarting && !living.some(([other, p]) => other === name && p.ready));
    const rows = living.filter(([name]) => !gone.some(([other]) => other === name)).map(([name, process]) => processRow(name, process, living.length > MANY));
    rows.push(...gone.map(([name, about]) => element("div", { class: "process gone", "data-name": name, title: about.how }, element("span", {}, indexOf(name)), element("b", {}, about.how))));
    card.querySelector(".processes").replaceChildren(...rows);
    card.dataset.state = gone.length ? "gone" : hasEnded(this.run) ? "absent" : stateOf(living, this.run.about.components[role]);
    const others = status?.others?.[role];
    const more = others ? `${others.count} more, ${percent(others.busy)} busy` : "";
    card.querySelector("p").textContent = [wordsOf(living, card.dataset.state), more].filter(Boolean).join(" · ");
  }

  /** Arrows between cards; their places are those that the style sheet gave the cards. */
  drawArrows(status) {
    const frame = this.place.getBoundingClientRect();
    this.arrows.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    const made = [];
    const told = isOver(this.run) ? null : status; // nothing travels any more
    for (const [name, channel] of Object.entries(this.run.about.channels)) {
      if (CONTROL.has(name)) continue;
      const ends = channel.connects.filter((role) => this.cards.has(role) && (role !== "visualizer" || status?.processes && Object.keys(status.processes).some((process) => process.startsWith("visualizer"))));
      for (const role of ends) {
        const [from, to] = channel.pattern === "push_pull" ? [role, channel.binds] : [channel.binds, role];
        made.push(...this.arrow(frame, name, from, to, rateOf(name, channel, told)));
      }
    }
    this.arrows.replaceChildren(...made);
  }

  arrow(frame, channel, from, to, rate) {
    const [a, b] = [this.cards.get(from), this.cards.get(to)].map((card) => card.getBoundingClientRect());
    const path = route(shift(a, frame), shift(b, frame), channel);
    const text = frame.width < 620 ? rate.text.split(" · ")[0] : rate.text;
    const kind = channel.split(".")[0];
    const curve = svg("path", { d: path.d, class: `channel ${kind} ${rate.moving ? "moving" : ""}` });
    const head = svg("path", { d: path.head, class: `head ${kind}` });
    if (!rate.text || !path.labelled) return [curve, head];
    const label = svg("text", { x: path.x, y: path.y, class: `rate ${kind}`, "text-anchor": path.anchor });
    label.textContent = text;
    return [curve, head, label];
  }
}

const indexOf = (name) => name.slice(name.lastIndexOf("-") + 1);

function processRow(name, process, small) {
  const idle = Math.max(0, 1 - process.busy - process.blocked - process.starved);
  const parts = ["busy", "blocked", "starved"].map((kind) => element("i", { class: kind, style: `flex:${process[kind]}` }));
  const shares = element("div", { class: "shares" }, ...parts, element("i", { style: `flex:${idle}` }));
  const words = `${name}: ${percent(process.busy)} busy, ${percent(process.blocked)} blocked, ${percent(process.starved)} starved, ${bytes(process.rss_bytes)}`;
  const row = element("div", { class: `process ${process.ready ? "" : "starting"}`, "data-name": name, title: words }, element("span", {}, indexOf(name)), shares);
  if (!small) row.append(element("b", {}, process.ready ? `${Math.round(process.cpu_percent)} %` : "starting"));
  return row;
}

function stateOf(living, component) {
  if (!living.length) return component.launched ? "absent" : "free";
  if (living.some(([, process]) => !process.ready)) return "starting";
  const mean = (kind) => living.reduce((sum, [, process]) => sum + process[kind], 0) / living.length;
  if (mean("blocked") >= 0.5) return "blocked";
  return mean("starved") >= 0.5 ? "starved" : "working";
}

function wordsOf(living, state) {
  const waiting = living.map(([, process]) => process.waiting_for).find(Boolean);
  if (waiting) return `waits for ${waiting.split(" (")[0]}`;
  const mean = (kind) => living.reduce((sum, [, process]) => sum + process[kind], 0) / living.length;
  if (state === "blocked") return `blocked ${percent(mean("blocked"))} of the time`;
  if (state === "starved") return `starved ${percent(mean("starved"))} of the time`;
  return { gone: "a process is gone", starting: "starting", absent: "not running", free: "its place is free", working: "" }[state];
}

function rateOf(name, channel, status) {
  if (!status) return { text: "", moving: false };
  if (name.startsWith("experience.")) {
    const rate = status.env_steps_per_s;
    return { text: rate ? `${short(rate)} steps/s` : "", moving: rate > 0 };
  }
  const publication = status.publication?.[channel.binds];
  if (!publication?.interval_s) return { text: "", moving: false };
  return { text: `${short(1 / publication.interval_s)}/s · ${bytes(publication.bytes)}`, moving: true };
}

const shift = (box, frame) => ({ left: box.left - frame.left, right: box.right - frame.left, top: box.top - frame.top, bottom: box.bottom - frame.top });
const middle = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];

/** A curve from one box to another: out of the sides that face each other. */
function route(a, b, channel) {
  const [ax, ay] = middle(a);
  const [bx, by] = middle(b);
  const offset = channel === "policy" ? 9 : channel === "critic" ? -9 : 0;
  if (b.left >= a.right || b.right <= a.left) {
    const right = b.left >= a.right;
    const overlap = [Math.max(a.top, b.top), Math.min(a.bottom, b.bottom)];
    const level = overlap[1] - overlap[0] > 24 ? (overlap[0] + overlap[1]) / 2 : null;
    const y1 = (level ?? ay) + offset;
    const y2 = (level ?? by) + offset;
    const [x1, x2] = right ? [a.right, b.left - 6] : [a.left, b.right + 6];
    const bend = (x2 - x1) / 2;
    const tip = right ? -6 : 6;
    return { d: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, head: `M${x2 - tip},${y2}l${tip * 1.4},-4.5v9z`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 + (right ? -7 : 17), anchor: "middle", labelled: Math.abs(x2 - x1) > 60 };
  }
  const down = b.top >= a.bottom;
  const overlap = [Math.max(a.left, b.left), Math.min(a.right, b.right)];
  const x = (overlap[0] + overlap[1]) / 2 + 3 * offset;
  const [y1, y2] = down ? [a.bottom, b.top - 6] : [a.top, b.bottom + 6];
  const tip = down ? -6 : 6;
  return { d: `M${x},${y1}L${x},${y2}`, head: `M${x},${y2 - tip}l-4.5,${tip * 1.4}h9z`, x: x + (offset > 0 ? 8 : -8), y: (y1 + y2) / 2 + 4, anchor: offset > 0 ? "start" : "end", labelled: Math.abs(y2 - y1) > 18 };
}

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
