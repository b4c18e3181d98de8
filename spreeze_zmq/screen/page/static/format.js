// Numbers and times as text.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234567 as "1,234,567". */
export const count = (value) => (value == null ? "–" : whole.format(value));

/** A figure with three digits that matter; thousands as k, millions as M. */
export function short(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size >= 1000) return whole.format(value);
  return size > 0 && size < 0.01 ? value.toExponential(1) : trim(value);
}

const trim = (value, digits = 3) => String(Number(value.toPrecision(digits)));

/** A return or a loss, as the terminal has it: see decimal in numbers.py. */
export function decimal(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return power(value, 2);
  if (size >= 1e4) return whole.format(value);
  if (size >= 10 || size === 0) return (value + 0).toFixed(1);
  if (size >= 0.1) return value.toFixed(2);
  return size >= 1e-4 ? trim(value, 2) : power(value, 1).replace(".0e", "e");
}

/** 1.20e+09: with two digits of the exponent, as Python writes it. */
const power = (value, digits) => value.toExponential(digits).replace(/e(.)(\d)$/, (_, sign, digit) => `e${sign}0${digit}`);

/** A value that is read off a curve: a whole number is one. */
export const exact = (value) => (Number.isInteger(value) && Math.abs(value) < 1e9 ? count(value) : decimal(value));

/** From which size on the labels of an axis have a unit, which, and its sign. */
const UNITS = [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"], [0, 1, ""]];

/** The labels of an axis: in one unit, with as many digits as their step needs. */
export function ticks(values, step) {
  const most = Math.max(0, ...values.map(Math.abs));
  let [, unit, sign] = UNITS.find(([from]) => most >= from);
  if (step < unit / 1000) [unit, sign] = [1, ""];
  const written = (value, digits) => (most > 0 && most < 0.01 ? value.toExponential(digits) : (value / unit).toFixed(digits));
  let digits = 0;
  while (digits < 9 && values.some((value) => Math.abs(written(value, digits) * unit - value) > step / 100)) digits++;
  return values.map((value) => (value === 0 ? "0" : !sign && !digits && most >= 1 ? count(value) : written(value, digits) + sign));
}

export const percent = (share) => `${Math.round(100 * share)} %`;

export function bytes(value) {
  if (value >= 1e9) return `${trim(value / 1e9)} GB`;
  if (value >= 1e6) return `${trim(value / 1e6)} MB`;
  return `${trim(value / 1e3)} kB`;
}

/** Seconds as 0:07, 12:30 or 1:02:03. */
export function clock(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const minutes = String(Math.floor(s / 60) % 60);
  const tail = String(s % 60).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${minutes.padStart(2, "0")}:${tail}` : `${minutes}:${tail}`;
}

/** Why a run has ended, beside the return of its best policy: that has played further episodes since. */
export function endedBy({ ended, status }) {
  const [, goal] = ended.match(/^return \S+ >= (\S+)$/) ?? [];
  return goal != null && status?.evaluation.best?.mean_return >= Number(goal) ? `return ${goal} reached` : ended;
}

/** A finding in a line: what is seen, why it matters, what to try. */
export const advice = (finding) => `${finding.seen}: ${finding.why}; try: ${finding.try}`;

/** Whether a run has no processes any more. */
export const hasEnded = (run) => run.ended || run.about.state !== "running";

/** Whether a run has no rates any more: those of its last status are of a time in which it ended, or was last heard. */
export const isOver = (run) => run.lost || hasEnded(run);

/** " ± 3.00" of the returns of a score; nothing for a single episode, which has no spread. */
export const spread = ({ std_return, num_episodes }) => (std_return == null || num_episodes === 1 ? "" : ` ± ${decimal(std_return)}`);

/** How many episodes a score is of, and how many of them time has cut, so that it is no return. */
export function episodesOf({ num_episodes, num_truncated, timed_out }) {
  return `${num_episodes} episode${num_episodes === 1 ? "" : "s"}${timed_out ? `, ${num_truncated || "some"} of them cut by time` : ""}`;
}

/** critic_learner as "critic learner". */
export const plain = (name) => name.replaceAll("_", " ");

/** An element with attributes and children; text is never read as HTML. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}
