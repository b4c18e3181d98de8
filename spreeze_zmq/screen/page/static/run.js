// The run as the page knows it: built from the entries of its journal and of the broker's feed.

import { advice, decimal, episodesOf, spread } from "./format.js";

const MAX_EVENTS = 300;
/** More points, or evaluations, are thinned to half as many or fewer. */
const MAX_ROWS = 3000;
/** Seconds that the rates of a status are the mean of, and most statuses in that time. */
const [RATE_S, STATUSES] = [5, 10];
/** Names of the newest entries: those that come twice are among the first that follow the story. */
const MAX_KNOWN = 20_000;

export class Run {
  constructor() {
    this.about = null; // what does not change: components, channels, limits
    this.status = null; // the newest one
    this.lately = []; // those of the time that its rates are of
    this.points = []; // of the curves, by time
    this.evaluations = [];
    // of the numbers that any of them has had, by table: one that the newest lacks keeps its history
    this.names = { gauges: new Set(), counts: new Set(), evaluation: new Set(), info: new Set() };
    this.events = []; // newest last
    this.gone = new Map(); // process name -> how it ended, until it is back
    this.reason = null; // why it ends
    this.ended = null; // the same, once it is over
    this.lost = ""; // why nothing is heard of it: "not connected", "silent"
    this.counted = new Set(); // roles whose first count has been told
    this.known = new Set(); // entries that came with the story and once more with the feed
  }

  /** Take one entry; returns whether the run starts from its beginning, as after a lost connection. */
  take(entry) {
    const { topic, about, t_s } = entry;
    if (topic === "run") {
      Object.assign(this, new Run());
      this.about = about;
      return true;
    }
    if (topic !== "status" && topic !== "point") {
      const key = `${topic} ${t_s} ${about.name ?? about.role ?? about.line ?? about.seen ?? about.version ?? ""}`;
      if (this.known.has(key)) return false;
      this.known.add(key);
      if (this.known.size > MAX_KNOWN) this.known.delete(this.known.values().next().value);
    }
    if (topic === "point") this.addPoint(about);
    else if (topic === "status") this.takeStatus(about, entry.point);
    else if (topic === "evaluation" && !about.confirmed && about.rescored == null) this.addEvaluation({ t_s, ...about });
    else if (topic === "end") this.reason = about.reason;
    else if (topic === "over") this.ended = this.reason ?? about.reason;
    this.remember(topic, about, t_s);
    return false;
  }

  takeStatus(status, point) {
    this.status = status;
    this.lately = [...this.lately, status].slice(-STATUSES).filter(({ t_s }) => t_s > status.t_s - RATE_S);
    if (point) this.addPoint(point);
    for (const [name, process] of Object.entries(status.processes)) if (process.ready) this.gone.delete(name);
  }

  addPoint(point) {
    const last = this.points.at(-1);
    if (last && point.t_s <= last.t_s) return;
    this.points.push(point);
    this.learn({ gauges: point.gauges, counts: point.counts });
    this.points = bounded(this.points);
  }

  addEvaluation(evaluation) {
    this.evaluations.push(evaluation);
    this.learn({ evaluation, info: evaluation.info });
    this.evaluations = bounded(this.evaluations);
  }

  /** The evaluations of the curves: without those that a limit of time has cut, which compare with no whole one, where some are. */
  get looks() {
    const whole = this.evaluations.filter(({ timed_out }) => !timed_out);
    return whole.length ? whole : this.evaluations;
  }

  /** Keep the names of the numbers in some tables. */
  learn(tables) {
    for (const [table, row] of Object.entries(tables))
      for (const name in row) if (typeof row[name] === "number") this.names[table].add(name);
  }

  /** What a person is told in a line; details below it where there are any. */
  remember(topic, about, t_s) {
    let line = null;
    let kind = "note";
    if (topic === "hello") line = `${about.name} is ready`;
    else if (topic === "exited") {
      line = `${about.name} ${about.how}${about.restarting ? "; it is started again" : ""}`;
      if (about.restarting) kind = "bad";
      this.gone.set(about.name, about);
    } else if (topic === "failure")
      [line, kind] = [`${about.name}: ${about.summary}${about.count > 1 ? ` (${about.count} of these)` : ""}`, "bad"];
    else if (topic === "refused") [line, kind] = [about.line, "bad"];
    else if (topic === "evaluation" && about.best)
      [line, kind] = [`${named(about)}: ${decimal(about.mean_return)}${spread(about)} in ${episodesOf(about)}`, about.rescored == null ? "good" : "note"];
    else if (topic === "scale" || topic === "set") [line, kind] = [about.reason, "why"];
    else if (topic === "workers" && this.isChange(about)) [line, kind] = [`${about.role}: ${about.count}, ${about.reason}`, "why"];
    else if (topic === "request") [line, kind] = [about.line, about.what === "note" ? "note" : "why"];
    else if (topic === "finding")
      [line, kind] = about.holds ? [`finding: ${advice(about)}`, "bad"] : [`no longer: ${about.seen}`, "note"];
    else if (topic === "end") line = `the run ends: ${about.reason}`;
    if (!line) return;
    if (topic === "hello") this.gone.delete(about.name);
    this.events.push({ t_s, line, kind, details: topic === "failure" ? about.traceback : "" });
    if (this.events.length > MAX_EVENTS) this.events.shift();
  }

  /** Whether a count is another than a role began with, for a reason that is not told yet. */
  isChange({ role, reason }) {
    const first = !this.counted.has(role);
    this.counted.add(role);
    return !first && !this.events.some((event) => event.line === reason);
  }
}

/** How many rows, which are by time, are not later than this. */
export function numUntil(rows, t_s) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].t_s <= t_s) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Rows by time, of which there are too many, evenly apart in time, with the first and the last one. */
function bounded(rows) {
  if (rows.length <= MAX_ROWS) return rows;
  const least_s = (rows.at(-1).t_s - rows[0].t_s) / (MAX_ROWS / 2);
  const apart_s = 2 ** Math.ceil(Math.log2(least_s)); // each time over, what stays is where it was
  const place = (row) => Math.floor(row.t_s / apart_s);
  return rows.filter((row, i) => i === 0 || i === rows.length - 1 || place(row) !== place(rows[i + 1]));
}

/** What an evaluation of the best policy is: at the end, after further episodes of it, or of a new one. */
function named({ final, rescored }) {
  if (final) return "the delivered policy, in fresh episodes that chose nothing";
  if (rescored == null) return "new best policy";
  return rescored ? `best policy re-scored after ${rescored} more episodes` : "best policy so far";
}
