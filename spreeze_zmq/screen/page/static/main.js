// Connects to the run, and draws what has changed.

import { Agent } from "./agent.js";
import { Charts } from "./charts.js";
import { showEvents } from "./events.js";
import { Explorer } from "./explorer.js";
import { Feed } from "./feed.js";
import { Flow } from "./flow.js";
import { showGroups } from "./groups.js";
import { showFigures, showHead } from "./head.js";
import { showMachines } from "./machines.js";
import { Run } from "./run.js";
import { Settings } from "./settings.js";

const run = new Run();
const charts = new Charts(run);
const explorer = new Explorer(document.getElementById("explorer"), run, charts);
const flow = new Flow(document.getElementById("flow"), run);
const settings = new Settings(document.getElementById("settings"), run, (wish) => feed.ask(wish));
const agent = new Agent(run);
let due = false;
let drawn_ms = 0;

function draw() {
  due = false;
  drawn_ms = performance.now();
  if (!run.about) return;
  showHead(run);
  if (run.status) showFigures(run);
  flow.draw();
  showMachines(document.getElementById("machines"), run);
  showGroups(document.getElementById("groups"), run);
  charts.draw();
  explorer.draw();
  settings.draw();
  showEvents(document.getElementById("events"), run);
}

/** Draw with the next frame, but not more often than once a second: a page that stays open must cost little. */
function soon() {
  if (due) return;
  due = true;
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawn_ms + 950 - performance.now()));
}

function notice(text) {
  const place = document.getElementById("notice");
  place.hidden = !text;
  place.textContent = text;
}

function begin() {
  document.title = `${run.about.run.env} · spreeze`;
  flow.begin();
  charts.begin();
  settings.begin();
}

function change() {
  if (run.ended) agent.end();
  soon();
}

function allow(connected) {
  document.body.dataset.connected = connected ? "yes" : "no";
  settings.allow(connected);
  agent.allow(connected);
}

const feed = new Feed(run, { begin, change, allow, notice });
addEventListener("resize", soon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  charts.begin();
  soon();
});
for (const button of document.querySelectorAll("[data-axis]"))
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-axis]")) other.setAttribute("aria-pressed", other === button);
    charts.axis = button.dataset.axis;
    charts.begin();
    soon();
  });
