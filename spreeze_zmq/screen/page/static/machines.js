// The machines that have joined the run, a row for each; the card is there only while some have and the run lasts.

import { bytes, count, element, hasEnded, short } from "./format.js";

const HEADINGS = ["machine", "cores busy", "runs", "env steps/s", "memory", "to the head", "from it"];

export function showMachines(card, run) {
  const machines = hasEnded(run) ? [] : Object.entries(run.status?.machines ?? {});
  card.hidden = !machines.length;
  const head = element("tr", {}, ...HEADINGS.map((text) => element("th", { scope: "col" }, text)));
  card.querySelector("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...machines.map(row)));
}

function row([name, machine]) {
  const { host, cores, busy, memory_bytes, runs, samplers, env_steps_per_s, sent_bytes_per_s, received_bytes_per_s } = machine;
  const part = Math.min(1, busy / cores);
  const shares = element("div", { class: "shares" }, element("i", { class: "busy", style: `flex:${part}` }), element("i", { style: `flex:${1 - part}` }));
  const title = element("th", { scope: "row" }, host, element("small", { class: "muted" }, ` ${name}`));
  const load = element("td", {}, element("div", { class: "process" }, shares, element("b", {}, `${busy.toFixed(1)} of ${cores}`)));
  const processes = element("td", { title: `${count(samplers)} samplers` }, runs || "nothing");
  const figures = [short(env_steps_per_s), bytes(memory_bytes), `${bytes(sent_bytes_per_s)}/s`, `${bytes(received_bytes_per_s)}/s`];
  return element("tr", { "data-name": name }, title, load, processes, ...figures.map((text) => element("td", {}, text)));
}
