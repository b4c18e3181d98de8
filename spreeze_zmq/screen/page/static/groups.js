// The groups of samplers and learners that share a model, a row for each; the card is there only while some do.

import { bytes, count, element, short } from "./format.js";

const HEADINGS = ["group", "env steps", "transitions trained", "rounds", "sent", "from the fused model"];

export function showGroups(card, { status }) {
  const groups = Object.entries(status?.groups ?? {});
  card.hidden = !groups.length;
  const head = element("tr", {}, ...HEADINGS.map((text) => element("th", { scope: "col" }, text)));
  card.querySelector("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...groups.map(row)));
}

function row([name, { env_steps, trained_transitions, rounds, received_bytes, distance, lost }]) {
  const says = name === "0" ? " this run: all other figures" : lost ? " lost" : "";
  const title = element("th", { scope: "row" }, name, element("small", { class: "muted" }, says));
  const figures = [short(env_steps), short(trained_transitions), count(rounds), bytes(received_bytes), `${(100 * distance).toFixed(1)} %`];
  return element("tr", { "data-name": name }, title, ...figures.map((text) => element("td", {}, text)));
}
