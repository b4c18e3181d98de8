// Connects to the run, and draws what has changed.

import { Agent } from "./agent.js";
import { Charts } from "./charts.js";
import { showEvents } from "./events.js";
import { Explorer } from "./explorer.js";
import { Flow } from "./flow.js";
import { clock, endedBy } from "./format.js";
import { showGroups } from "./groups.js";
import { showFigures, showHead } from "./head.js";
import { showMachines } from "./machines.js";
import { Run } from "./run.js";
import { Settings } from "./settings.js";

const run = new Run();
const charts = new Charts(run);
const explorer = new Explorer(document.getElementById("explorer"), run, charts);
const flow = new Flow(document.getElementById("flow"), run);
const settings = new Settings(document.getElementById("settings"), run, ask);
const agent = new Agent(run);
let socket = null;
let due = false;
let drawn_ms = 0;

/** Send a wish to the run; returns whether there is a connection that takes it. */
function ask(wish) {
  if (socket?.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(wish));
  return true;
}

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

function connect(delay_s) {
  socket = new WebSocket(new URL("feed", location.href.replace(/^http/, "ws")));
  let opened = false;
  socket.onmessage = ({ data }) => {
    for (const entry of JSON.parse(data)) if (run.take(entry)) begin();
    if (run.ended) agent.end();
    soon();
  };
  socket.onopen = () => {
    opened = true;
    document.body.dataset.connected = "yes";
    settings.allow(true);
    agent.allow(true);
    notice("");
  };
  socket.onclose = () => {
    document.body.dataset.connected = "no";
    settings.allow(false);
    agent.allow(false);
    if (run.ended) {
      notice(`The run is over after ${clock(run.status?.t_s ?? 0)}: ${endedBy(run)}. To look again: spreeze view ${run.about.run_dir}`);
      return;
    }
    notice("The connection is lost; trying again");
    setTimeout(() => connect(opened ? 0.3 : Math.min(2 * delay_s, 5)), 1000 * (opened ? 0.3 : delay_s));
  };
}

function begin() {
  document.title = `${run.about.run.env} · spreeze`;
  flow.begin();
  charts.begin();
  settings.begin();
}

connect(0.5);
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
