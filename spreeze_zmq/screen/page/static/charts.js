// Curves over time, with uPlot; colours come from the style sheet, so that they follow the theme.

import { clock, decimal, element, exact, plain, ticks } from "./format.js";

/** Gauges that are drawn elsewhere, or that hardly move. */
const ELSEWHERE = /^(replay_ratio|.*replay_size|batch_size|.*learning_rate)$/;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
/** The dashes of a second line, whose colour alone not everybody tells from the first one's. */
export const SECOND = [8, 3];
const ROLE_COLOURS = ["blue", "violet", "green", "amber", "teal", "red"];

export class Charts {
  constructor(run) {
    this.run = run;
    this.axis = "time";
    this.charts = new Map();
  }

  /** Forget every chart: another run, theme or axis. */
  begin() {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
    document.getElementById("losses").replaceChildren();
  }

  draw() {
    const { points, status } = this.run;
    const x = points.map((point) => point.t_s);
    const column = (name) => points.map((point) => point[name] ?? null);
    this.learning();
    this.show("rates", [x, column("env_steps_per_s"), column("trained_transitions_per_s")], [
      line("env steps /s", "blue", { scale: "y" }),
      line("trained on /s", "violet", { scale: "right", dash: SECOND }),
    ]);
    this.show("ratio", [x, column("replay_ratio"), column("replay_ratio_target")], [line("measured", "blue"), line("wanted", "muted", { dash: [4, 4] })]);
    const bound = status?.policy_lag.bound;
    const lag = [x, column("lag_p50"), column("lag_p99")];
    const series = [line("p50", "blue"), line("p99", "violet", { dash: SECOND })];
    if (bound != null) (lag.push(x.map(() => bound)), series.push(line("bound", "red", { dash: [4, 4] })));
    this.show("lag", lag, series);
    this.counts(x);
    this.losses(x);
  }

  learning() {
    const { run } = this;
    const { points, looks } = run;
    const steps = this.axis === "env_steps";
    const known = points.filter((point) => point.training_return != null);
    const training = [known.map((point) => (steps ? point.env_steps : point.t_s)), known.map((point) => point.training_return), ...band(known, "training_return", "training_return_std")];
    const evaluated = [...looks].sort((a, b) => key(a) - key(b));
    function key(row) {
      return steps ? row.env_steps : row.t_s;
    }
    const evaluation = [evaluated.map(key), evaluated.map((row) => row.mean_return), ...band(evaluated, "mean_return", "std_return")];
    const series = [
      line("training", "blue", { width: 1.5 }), edge("blue"), edge("blue"),
      line("evaluation", "green", { width: 2.5, points: { show: true, size: 6 } }), edge("green"), edge("green"),
    ];
    const bands = [{ series: [3, 2], fill: faint("blue") }, { series: [6, 5], fill: faint("green") }];
    const goal = run.status?.stop.return;
    const tables = [unique(training), unique(evaluation)];
    if (goal != null && points.length && isNear(goal, training[1], evaluation[1])) {
      const ends = steps ? [0, points.at(-1).env_steps] : [points[0].t_s, points.at(-1).t_s];
      tables.push([ends[1] > ends[0] ? ends : [ends[0], ends[0] + 1], [goal, goal]]);
      series.push(line("goal", "muted", { dash: [4, 4] }));
    }
    this.show("learning", uPlot.join(tables), series, { bands, tall: true, counted: steps && "env steps" });
  }

  counts(x) {
    const { components } = this.run.about;
    const moves = (role) => role === "sampler" || components[role].count.maximum > 1;
    const roles = Object.keys(components).filter(moves);
    const data = [x, ...roles.map((role) => this.run.points.map((point) => point.counts[role] ?? 0))];
    const stepped = uPlot.paths.stepped({ align: 1 });
    this.show("counts", data, roles.map((role, i) => line(plain(role), ROLE_COLOURS[i % ROLE_COLOURS.length], { paths: stepped })), { whole: true });
  }

  losses(x) {
    const names = [...this.run.names.gauges].filter((name) => !ELSEWHERE.test(name)).sort(byKind);
    const place = document.getElementById("losses");
    for (const name of names) {
      const id = `loss-${name}`;
      let box = document.getElementById(id);
      if (!box) {
        box = element("div", { class: "loss" }, element("p", {}, element("span", {}, plain(name)), element("b", { class: "number" })), element("div", { class: "chart spark", id }));
        place.append(box);
      } else box = box.parentElement;
      box.querySelector("b").textContent = decimal(this.run.status?.gauges[name]);
      this.show(id, [x, this.run.points.map((point) => point.gauges?.[name] ?? null)], [line(plain(name), "blue", { width: 1.25 })], { spark: true });
    }
  }

  /** Draw a chart, making it where it is new or its lines or width have changed. */
  show(id, data, series, more = {}) {
    const place = document.getElementById(id);
    const width = Math.floor(place.clientWidth);
    const made = this.charts.get(id);
    place.dataset.points = data[0].length;
    const shape = `${series.map((one) => one.label).join()} ${more.counted}`;
    if (made && made.shape === shape) {
      const height = heightOf(place, more.spark);
      if (made.width !== width || made.height !== height) made.setSize({ width, height });
      const zoomed = made.root.classList.contains("zoomed");
      made.setData(data, !zoomed);
      if (zoomed) made.redraw();
      return;
    }
    made?.destroy();
    place.replaceChildren();
    const chart = new uPlot(options(width, heightOf(place, more.spark), series, more), data, place);
    chart.shape = shape;
    if (more.zoom) chart.over.addEventListener("dblclick", () => chart.root.classList.remove("zoomed"));
    series.forEach((one, i) => one.unnamed && (chart.root.querySelectorAll(".u-legend .u-series")[i + 1].style.display = "none"));
    this.charts.set(id, chart);
  }
}

/** The height of a plot: a legend has its place below. */
const heightOf = (place, spark) => Math.max(40, place.clientHeight - (spark ? 0 : 26));

export const line = (label, name, more = {}) => ({ label, stroke: colour(name), width: 1.5, points: { show: false }, spanGaps: true, value: (_, v) => (v == null ? "" : exact(v)), ...more });
const edge = (name) => ({ label: `edge ${name}`, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true, unnamed: true });
const faint = (name) => `color-mix(in srgb, ${colour(name)} 14%, transparent)`;

function band(rows, mean, spread) {
  return [rows.map((row) => row[mean] - (row[spread] ?? 0)), rows.map((row) => row[mean] + (row[spread] ?? 0))];
}

/** Losses first, then the rest by name. */
const byKind = (a, b) => b.includes("loss") - a.includes("loss") || a.localeCompare(b);

/** Whether a goal can be drawn without flattening the curves. */
function isNear(goal, ...columns) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of columns.flat().filter((value) => value != null)) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const room = 1.5 * Math.max(high - low, 0.1 * Math.abs(high));
  return low <= high && goal > low - room && goal < high + room;
}

/** uPlot joins tables whose x grow strictly. */
export function unique(table) {
  const kept = table[0].map((x, i) => i + 1 === table[0].length || table[0][i + 1] > x);
  return table.map((column) => column.filter((_, i) => kept[i]));
}

/** Seconds between two labels of a time: whole ones, whose clocks differ. */
const SECONDS = [1, 60].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((times) => times * unit));
SECONDS.push(...[1, 2, 3, 6, 12].map((hours) => 3600 * hours), ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((days) => 86_400 * days));

/** The width of an axis that has room for its labels. */
const widest = (_, labels) => Math.max(46, 10 + 6.5 * Math.max(0, ...(labels ?? []).map((label) => label.length)));

function options(width, height, series, { bands = [], spark = false, counted = "", whole = false, zoom = false }) {
  const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif", labelGap: 0 };
  const right = series.find((one) => one.scale === "right");
  const numbers = (_, values, i, space, step) => ticks(values, step);
  const time = (_, values) => values.map(clock);
  const below = counted ? { space: 70, values: numbers } : { space: 60, values: time, incrs: SECONDS };
  const beside = { ...axis, size: widest, space: 34, values: numbers };
  const left = right ? series.find((one) => one.scale !== "right") : null;
  const axes = [{ ...axis, size: 24, ...below, grid: { show: false } }, { ...beside, stroke: left?.stroke ?? axis.stroke }];
  if (whole) axes[1].incrs = [1, 2, 5, 10, 20, 50, 100];
  if (right) axes.push({ ...beside, scale: "right", side: 1, stroke: right.stroke, grid: { show: false } });
  const isDashed = (i) => series[i - 1]?.dash?.length > 0;
  const markers = { width: (_, i) => (isDashed(i) ? 2 : 0), stroke: (_, i) => series[i - 1]?.stroke, fill: (_, i) => (isDashed(i) ? "transparent" : series[i - 1]?.stroke) };
  const legend = { show: !spark, live: true, markers };
  return {
    width, height, bands, legend,
    padding: spark ? [4, 0, 4, 0] : [10, right ? 0 : 12, 0, 0],
    scales: { x: { time: false }, y: { range: padded }, right: { range: padded } },
    axes: spark ? [{ show: false }, { show: false }] : axes,
    cursor: { show: !spark, drag: { setScale: zoom, x: zoom }, points: { size: 6 } },
    hooks: { setSelect: [(chart) => zoom && chart.select.width > 0 && chart.root.classList.add("zoomed")] },
    series: [{ label: counted || "time", value: (_, v) => (v == null ? "" : counted ? exact(v) : clock(v)) }, ...series],
  };
}

function padded(_, low, high) {
  if (low == null) return [0, 1];
  const room = high > low ? 0.08 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}
