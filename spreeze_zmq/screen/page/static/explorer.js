// Any number of the run, and of others beside it, over an axis of one's choice: two at once, smoothed, zoomed, and
// kept as a file.

import { line, SECOND, unique } from "./charts.js";
import { element, plain } from "./format.js";
import { Run, numUntil } from "./run.js";

const AXES = { t_s: "time", env_steps: "env steps", trained_transitions: "trained transitions" };
/** What a point of the curves holds besides the axes, and tables of further numbers. */
const AXIS_OR_TABLE = new Set([...Object.keys(AXES), "gauges", "counts"]);
/** Of an evaluation: what is a number but no result. */
const NO_RESULT = new Set(["t_s", "version", "env_steps", "seed", "num_episodes"]);
const NONE = "nothing else";
const ADD = "another run";
/** Colours of other runs, in the order in which they were added, over and over. */
const COLOURS = ["green", "amber", "red", "teal", "muted", "text"];
const colourOf = (i) => COLOURS[i % COLOURS.length];
/** Milliseconds between two looks at other runs, which may be live. */
const LOOK_MS = 10_000;

export class Explorer {
  constructor(place, run, charts) {
    this.run = run;
    this.charts = charts;
    this.first = element("select", { "aria-label": "number" });
    this.second = element("select", { "aria-label": "second number, on an axis of its own" });
    this.axis = element("select", { "aria-label": "horizontal axis" }, ...Object.entries(AXES).map(([value, label]) => element("option", { value }, label)));
    this.smooth = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: 0, "aria-label": "smoothing" });
    this.beside = element("select", { "aria-label": "another run beside" });
    this.chips = element("span", { class: "chips" });
    this.others = new Map(); // name -> its run, whose curves are drawn beside this one's
    this.states = {}; // name -> what is offered of it
    offer(this.beside, [ADD], ADD);
    this.find();
    asked().forEach((name) => this.add(name)); // whether or not it is among those that are offered
    this.beside.addEventListener("focus", () => this.find());
    this.beside.addEventListener("input", () => this.add(this.beside.value));
    setInterval(() => document.hidden || run.lost || this.follow(), LOOK_MS);
    const keep = element("button", { type: "button" }, "download CSV");
    keep.addEventListener("click", () => this.download());
    for (const choice of [this.first, this.second, this.axis, this.smooth]) choice.addEventListener("input", () => this.draw());
    place.querySelector(".choices").append(this.first, "and", this.second, "over", this.axis, "beside", this.chips, this.beside, element("label", {}, "smooth", this.smooth), keep);
  }

  draw() {
    const numbers = numbersOf(this.run);
    offer(this.first, [...numbers.keys()], numbers.has("training_return") ? "training_return" : null);
    offer(this.second, [NONE, ...numbers.keys()], NONE);
    const weight = Number(this.smooth.value);
    const tables = [];
    const series = [];
    for (const { run, number, label, colour, ...style } of this.curves()) {
      const table = this.table(run, number);
      tables.push(table);
      series.push(line(label, colour, { ...style, alpha: weight ? 0.25 : 1, unnamed: weight > 0 }));
      if (!weight) continue;
      tables.push([table[0], smoothed(table[1], weight)]);
      series.push(line(`${label}, smoothed`, colour, { ...style, width: 2 }));
    }
    if (!series.length) return;
    const counted = this.axis.value === "t_s" ? "" : AXES[this.axis.value];
    this.charts.show("explored", uPlot.join(tables), series, { tall: true, zoom: true, counted });
  }

  /** What is drawn: of each run the chosen numbers that it has, the second one on an axis of its own. */
  curves() {
    const chosen = [this.first.value, this.second.value];
    const drawn = [];
    const add = (run, prefix, colours, dashes) => {
      const numbers = numbersOf(run);
      chosen.forEach((name, i) => {
        if (!numbers.has(name)) return;
        drawn.push({ run, name, number: numbers.get(name), prefix, label: prefix + plain(name), colour: colours[i], scale: ["y", "right"][i], dash: dashes[i] });
      });
    };
    add(this.run, "", ["blue", "violet"], [[], SECOND]);
    [...this.others].forEach(([name, run], i) => run && add(run, `${name}: `, [colourOf(i), colourOf(i)], [[], SECOND]));
    return drawn;
  }

  /** The points of a number, by the chosen axis. */
  table(run, { rows, of }) {
    const axis = this.axis.value;
    const pairs = rows.map((row) => [row[axis] ?? trainedAt(run, row), of(row)]).filter(([x, y]) => x != null && y != null);
    pairs.sort(([a], [b]) => a - b);
    return unique([pairs.map(([x]) => x), pairs.map(([, y]) => y)]);
  }

  /** Offer the runs that are beside this one now, and are not drawn. */
  async find() {
    const answer = await fetch("runs").catch(() => null);
    if (answer?.ok) this.states = await answer.json();
    this.offer();
  }

  offer() {
    const names = Object.keys(this.states).filter((name) => !this.others.has(name));
    offer(this.beside, [ADD, ...names], ADD, (name) => (name === ADD ? name : about(name, this.states[name])));
    this.beside.value = ADD;
  }

  /** Draw another run too, from now on. */
  async add(name) {
    if (name === ADD) return;
    this.others.set(name, null);
    this.show();
    await this.read(name);
    this.draw();
  }

  /** Draw another run no more. */
  drop(name) {
    this.others.delete(name);
    this.show();
    this.draw();
  }

  /** Show which runs are drawn, each with what takes it away. */
  show() {
    const chips = [...this.others.keys()].map((name, i) => {
      const chip = element("button", { type: "button", class: "chip", style: `--own: var(--${colourOf(i)})`, title: `draw ${name} no more` }, name, element("span", { "aria-hidden": true }, " ×"));
      chip.addEventListener("click", () => this.drop(name));
      return chip;
    });
    this.chips.replaceChildren(...chips);
    this.offer();
  }

  /** Read the other runs again that go on, and once more those that have ended since. */
  async follow() {
    if (!this.others.size) return;
    const went = this.states;
    await this.find();
    const goes = (states, name) => states[name]?.state === "running";
    for (const name of this.others.keys()) if (goes(went, name) || goes(this.states, name)) await this.read(name);
    this.draw();
  }

  async read(name) {
    const answer = await fetch(`runs/${encodeURIComponent(name)}`).catch(() => null);
    if (!this.others.has(name)) return;
    if (answer?.status === 404 && !this.others.get(name)) this.drop(name); // the address asks for what is not there
    if (!answer?.ok) return;
    const other = new Run();
    for (const entry of await answer.json()) other.take(entry);
    if (this.others.has(name)) this.others.set(name, other);
  }

  /** Keep what is drawn, as it is without smoothing. */
  download() {
    const curves = this.curves();
    const columns = uPlot.join(curves.map(({ run, number }) => this.table(run, number)));
    const titles = curves.map(({ prefix, name }) => prefix + name);
    const head = [this.axis.value, ...titles].map((name) => `"${name.replaceAll('"', '""')}"`).join();
    const rows = columns[0].map((_, i) => columns.map((column) => column[i] ?? "").join());
    const url = URL.createObjectURL(new Blob([`${[head, ...rows].join("\n")}\n`], { type: "text/csv" }));
    element("a", { href: url, download: `${this.run.about.name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

/** The runs that the address asks for, as `spreeze view` prints it. */
const asked = () => (location.hash.match(/^#beside=(.*)/)?.[1] ?? "").split(",").filter(Boolean).map(decodeURIComponent);

/** A run as it is offered. */
const about = (name, { algorithm, seed, state }) => `${name} (${algorithm}, seed ${seed}${state === "running" ? ", live" : ""})`;

/** Every number that a run has: name -> its rows, and where in a row it is. */
export function numbersOf(run) {
  const { points, looks, names } = run;
  const found = new Map();
  for (const name of Object.keys(points.at(-1) ?? {})) if (!AXIS_OR_TABLE.has(name)) found.set(name, { rows: points, of: (row) => row[name] });
  for (const name of [...names.gauges].sort()) if (!found.has(name)) found.set(name, { rows: points, of: (row) => row.gauges?.[name] });
  for (const role of names.counts) found.set(`processes of ${role}`, { rows: points, of: (row) => row.counts?.[role] });
  for (const name of names.evaluation)
    if (!NO_RESULT.has(name)) found.set(`evaluation: ${name}`, { rows: looks, of: (row) => row[name] });
  for (const name of [...names.info].sort()) found.set(`evaluation info: ${name}`, { rows: looks, of: (row) => row.info?.[name] });
  return found;
}

/** Transitions that a run had trained on when a policy had seen as many env steps as this evaluation says; while none
    are sampled, as on data alone, when it was played; none is known of before. */
function trainedAt({ points }, { env_steps, t_s }) {
  let i = numUntil(points, t_s) - 1;
  while (i >= 0 && !(points[i].env_steps <= env_steps)) i--; // few: it is played soon after it was published
  return points[i]?.trained_transitions;
}

/** Offer these names, and keep what is chosen. */
function offer(choice, names, preferred, shown = plain) {
  const texts = names.map(shown);
  const offered = [...names, ...texts].join("\n");
  if (choice.dataset.offered === offered) return;
  const before = choice.value || preferred;
  choice.dataset.offered = offered;
  choice.replaceChildren(...names.map((value, i) => element("option", { value }, texts[i])));
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
