// Any number of the run over an axis of one's choice: two at once, smoothed, zoomed, and kept as a file.

import { line, unique } from "./charts.js";
import { element, plain } from "./format.js";
import { Run } from "./run.js";

const AXES = { t_s: "time", env_steps: "env steps", trained_transitions: "trained transitions" };
/** What a point of the curves holds besides the axes, and tables of further numbers. */
const AXIS_OR_TABLE = new Set([...Object.keys(AXES), "gauges", "counts"]);
/** Of an evaluation: what is a number but no result. */
const NO_RESULT = new Set(["t_s", "version", "env_steps", "seed", "num_episodes"]);
const NONE = "nothing else";
const ALONE = "no other run";
/** Milliseconds between two looks at another run, which may be live. */
const LOOK_MS = 10_000;

export class Explorer {
  constructor(place, run, charts) {
    this.run = run;
    this.charts = charts;
    this.first = element("select", { "aria-label": "number" });
    this.second = element("select", { "aria-label": "second number, on an axis of its own" });
    this.axis = element("select", { "aria-label": "horizontal axis" }, ...Object.entries(AXES).map(([value, label]) => element("option", { value }, label)));
    this.smooth = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "smoothing" });
    this.beside = element("select", { "aria-label": "another run" });
    this.other = null; // the run that is drawn beside this one
    offer(this.beside, [ALONE], ALONE);
    this.find();
    this.beside.addEventListener("focus", () => this.find());
    this.beside.addEventListener("input", () => this.look());
    setInterval(() => this.other && !document.hidden && this.look(), LOOK_MS);
    const keep = element("button", { type: "button" }, "download CSV");
    keep.addEventListener("click", () => this.download());
    for (const choice of [this.first, this.second, this.axis, this.smooth]) choice.addEventListener("input", () => this.draw());
    place.querySelector(".choices").append(this.first, "and", this.second, "over", this.axis, "beside", this.beside, element("label", {}, "smooth", this.smooth), keep);
  }

  draw() {
    const numbers = numbersOf(this.run);
    const others = this.other ? numbersOf(this.other) : new Map();
    offer(this.first, [...numbers.keys()], numbers.has("return") ? "return" : null);
    offer(this.second, [NONE, ...numbers.keys()], NONE);
    const chosen = [this.first.value, this.second.value].filter((name) => numbers.has(name));
    if (!chosen.length) return;
    const weight = Number(this.smooth.value);
    const tables = [];
    const series = [];
    const add = (run, number, label, colour, style) => {
      const table = this.table(run, number);
      tables.push(table);
      series.push(line(label, colour, { ...style, alpha: weight ? 0.25 : 1, unnamed: weight > 0 }));
      if (!weight) return;
      tables.push([table[0], smoothed(table[1], weight)]);
      series.push(line(`${label}, smoothed`, colour, { ...style, width: 2 }));
    };
    chosen.forEach((name, i) => {
      const [colour, scale] = i ? ["violet", "right"] : ["blue", "y"];
      add(this.run, numbers.get(name), plain(name), colour, { scale });
      if (others.has(name)) add(this.other, others.get(name), `${this.beside.value}: ${plain(name)}`, i ? "red" : "green", { scale, dash: [6, 4] });
    });
    const counted = this.axis.value === "t_s" ? "" : AXES[this.axis.value];
    this.charts.show("explored", uPlot.join(tables), series, { tall: true, zoom: true, counted });
  }

  /** The points of a number, by the chosen axis. */
  table(run, { rows, of }) {
    const axis = this.axis.value;
    const pairs = rows.map((row) => [row[axis] ?? trainedAt(run, row.env_steps), of(row)]).filter(([x, y]) => x != null && y != null);
    pairs.sort(([a], [b]) => a - b);
    return unique([pairs.map(([x]) => x), pairs.map(([, y]) => y)]);
  }

  /** Offer the runs that are beside this one now. */
  async find() {
    const answer = await fetch("runs").catch(() => null);
    if (answer?.ok) offer(this.beside, [ALONE, ...Object.keys(await answer.json())], ALONE, String);
  }

  /** Read the other run, and draw it. */
  async look() {
    const name = this.beside.value;
    if (name === ALONE) this.other = null;
    else {
      const answer = await fetch(`runs/${encodeURIComponent(name)}`).catch(() => null);
      if (!answer?.ok || this.beside.value !== name) return;
      const other = new Run();
      for (const entry of await answer.json()) other.take(entry);
      this.other = other;
    }
    this.draw();
  }

  download() {
    const numbers = numbersOf(this.run);
    const chosen = [this.first.value, this.second.value].filter((name) => numbers.has(name));
    const columns = uPlot.join(chosen.map((name) => this.table(this.run, numbers.get(name))));
    const head = [this.axis.value, ...chosen].map((name) => `"${name.replaceAll('"', '""')}"`).join();
    const rows = columns[0].map((_, i) => columns.map((column) => column[i] ?? "").join());
    const url = URL.createObjectURL(new Blob([`${[head, ...rows].join("\n")}\n`], { type: "text/csv" }));
    element("a", { href: url, download: `${this.run.about.name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

/** Every number that a run has: name -> its rows, and where in a row it is. */
function numbersOf(run) {
  const { points, evaluations } = run;
  const found = new Map();
  const last = points.at(-1) ?? {};
  for (const name of Object.keys(last)) if (!AXIS_OR_TABLE.has(name)) found.set(name, { rows: points, of: (row) => row[name] });
  for (const name of Object.keys(last.gauges ?? {}).sort()) found.set(name, { rows: points, of: (row) => row.gauges?.[name] });
  for (const role of Object.keys(last.counts ?? {})) found.set(`processes of ${role}`, { rows: points, of: (row) => row.counts[role] });
  const score = evaluations.at(-1) ?? {};
  for (const [name, value] of Object.entries(score))
    if (typeof value === "number" && !NO_RESULT.has(name)) found.set(`evaluation: ${name}`, { rows: evaluations, of: (row) => row[name] });
  for (const name of Object.keys(score.info ?? {}).sort()) found.set(`evaluation: ${name}`, { rows: evaluations, of: (row) => row.info?.[name] });
  return found;
}

/** Transitions that a run had trained on when a policy had seen this many env steps. */
const trainedAt = (run, env_steps) => run.points.findLast((point) => point.env_steps <= env_steps)?.trained_transitions ?? 0;

/** Offer these names, and keep what is chosen. */
function offer(choice, names, preferred, shown = plain) {
  if (choice.dataset.offered === names.join("\n")) return;
  const before = choice.value || preferred;
  choice.dataset.offered = names.join("\n");
  choice.replaceChildren(...names.map((value) => element("option", { value }, shown(value))));
  choice.value = names.includes(before) ? before : names[0];
}

/** The exponential mean of a curve, of which each earlier point weighs so much less. */
function smoothed(values, weight) {
  let mean = 0;
  let whole = 0;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    whole = weight * whole + (1 - weight);
    return mean / whole;
  });
}
