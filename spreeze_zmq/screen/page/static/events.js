// What happened, newest first: changes with their reasons, failures with their log lines.

import { clock, element } from "./format.js";

/** Events that are shown, the newest ones. */
const MOST = 100;

let shown = -1;

export function showEvents(place, run) {
  const key = run.events.length ? run.events.length + run.events.at(-1).t_s : 0;
  if (key === shown) return;
  shown = key;
  const open = new Set([...place.querySelectorAll("details[open]")].map((details) => details.dataset.key));
  place.replaceChildren(...run.events.toReversed().slice(0, MOST).map((event) => line(event, open)));
  if (run.events.length > MOST) place.append(element("li", { class: "muted" }, `earlier ones: ${run.about.run_dir}/metrics.jsonl`));
  if (!run.events.length) place.replaceChildren(element("li", { class: "muted" }, "nothing yet"));
}

function line(event, open) {
  const time = element("time", {}, clock(event.t_s));
  if (!event.details) return element("li", { class: event.kind }, time, element("span", {}, event.line));
  const key = `${event.t_s} ${event.line}`;
  const details = element("details", { "data-key": key, open: open.has(key) ? "" : null }, element("summary", {}, event.line), element("pre", {}, event.details));
  return element("li", { class: event.kind }, time, details);
}
