// Any number of the run over an axis of one's choice: two at once, smoothed, zoomed, and kept as a file.

import { line, unique } from "./charts.js";
import { element, plain } from "./format.js";

const AXES = { t_s: "time", env_steps: "env steps", trained_transitions: "trained transitions" };
/** What a point of the curves holds besides the axes, and tables of further numbers. */
const AXIS_OR_TABLE = new Set([...Object.keys(AXES), "gauges", "counts"]);
/** Of an evaluation: what is a number but no result. */
const NO_RESULT = new Set(["t_s", "version", "env_steps", "seed", "num_episodes"]);
const NONE = "nothing else";

export class Explorer {
  constructor(place, run, charts) {
    this.run = run;
    this.charts = charts;
    this.first = element("select", { "aria-label": "number" });
    this.second = element("select", { "aria-label": "second number, on an axis of its own" });
    this.axis = element("select", { "aria-label": "horizontal axis" }, ...Object.entries(AXES).map(([value, label]) => element("option", { value }, label)));
    this.smooth = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "smoothing" });
    const keep = element("button", { type: "button" }, "download CSV");
    keep.addEventListener("click", () => this.download());
    for (const choice of [this.first, this.second, this.axis, this.smooth]) choice.addEventListener("input", () => this.draw());
    place.querySelector(".choices").append(this.first, "and", this.second, "over", this.axis, element("label", {}, "smooth", this.smooth), keep);
  }

  draw() {
    const numbers = this.numbers();
    offer(this.first, [...numbers.keys()], numbers.has("return") ? "return" : null);
    offer(this.second, [NONE, ...numbers.keys()], NONE);
    const chosen = [this.first.value, this.second.value].filter((name) => numbers.has(name));
    if (!chosen.length) return;
    const weight = Number(this.smooth.value);
    const tables = [];
    const series = [];
    chosen.forEach((name, i) => {
      const [colour, scale] = i ? ["violet", "right"] : ["blue", "y"];
      const table = this.table(numbers.get(name));
      tables.push(table);
      series.push(line(plain(name), colour, { scale, alpha: weight ? 0.25 : 1 }));
      if (!weight) return;
      tables.push([table[0], smoothed(table[1], weight)]);
      series.push(line(`${plain(name)}, smoothed`, colour, { scale, width: 2 }));
    });
    const counted = this.axis.value === "t_s" ? "" : AXES[this.axis.value];
    this.charts.show("explored", uPlot.join(tables), series, { tall: true, zoom: true, counted });
  }

  /** Every number that the run has: name -> its rows, and where in a row it is. */
  numbers() {
    const { points, evaluations } = this.run;
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

  /** The points of a number, by the chosen axis. */
  table({ rows, of }) {
    const axis = this.axis.value;
    const pairs = rows.map((row) => [row[axis] ?? this.trainedAt(row.env_steps), of(row)]).filter(([x, y]) => x != null && y != null);
    pairs.sort(([a], [b]) => a - b);
    return unique([pairs.map(([x]) => x), pairs.map(([, y]) => y)]);
  }

  /** Transitions trained on when a policy had seen this many env steps. */
  trainedAt(env_steps) {
    return this.run.points.findLast((point) => point.env_steps <= env_steps)?.trained_transitions ?? 0;
  }

  download() {
    const numbers = this.numbers();
    const chosen = [this.first.value, this.second.value].filter((name) => numbers.has(name));
    const columns = uPlot.join(chosen.map((name) => this.table(numbers.get(name))));
    const head = [this.axis.value, ...chosen].map((name) => `"${name.replaceAll('"', '""')}"`).join();
    const rows = columns[0].map((_, i) => columns.map((column) => column[i] ?? "").join());
    const url = URL.createObjectURL(new Blob([`${[head, ...rows].join("\n")}\n`], { type: "text/csv" }));
    element("a", { href: url, download: `${this.run.about.name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

/** Offer these names, and keep what is chosen. */
function offer(choice, names, preferred) {
  if (choice.dataset.offered === names.join("\n")) return;
  const before = choice.value || preferred;
  choice.dataset.offered = names.join("\n");
  choice.replaceChildren(...names.map((value) => element("option", { value }, plain(value))));
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
