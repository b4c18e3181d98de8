// The head of the page, and the figures below the pictures.

import { advice, clock, count, decimal, element, episodesOf, isOver, percent, plain, short, spread } from "./format.js";

/** What is said of a run that this page reads from its folder, and does not hear of, by its state. */
const READ = { running: "runs; as of when this page was loaded", ended: "past run", crashed: "past run, crashed" };

const at = (id) => document.getElementById(id);

export function showHead(run) {
  const { about, status } = run;
  at("env").textContent = about.run.env;
  at("facts").textContent = `${about.run.algorithm.toUpperCase()} · seed ${about.run.seed} · ${about.name}`;
  const state = run.ended ? "over" : about.live ? run.lost || status?.state : READ[about.state];
  if (state) at("state").textContent = at("state").dataset.state = state;
  if (!status && (run.ended || !about.live)) for (const id of ["scores", "figures"]) at(id).replaceChildren(element("p", { class: "muted" }, "nothing was recorded"));
  if (!status) return;
  showStanding(status);
  at("clock").textContent = clock(status.t_s);
  const goals = goalsOf(status);
  const next = isOver(run) ? null : least(goals.filter((goal) => goal.left_s != null), (goal) => goal.left_s);
  const reached = next ?? least(goals, (goal) => -goal.share);
  at("bar").style.width = `${100 * Math.min(1, reached?.share ?? 0)}%`;
  const earlier = status.stop.return == null ? "" : " at most"; // a run may end earlier by its return
  at("left").textContent = next && about.live ? `${clock(next.left_s)} left${earlier}` : "";
  at("stop").textContent = goals.length ? `until ${goals.map((goal) => goal.text).join(" or ")}` : "until it is interrupted";
}

/** What holds the run back now, however long ago that was an event: its findings, and senders that nothing gets through of. */
function showStanding({ findings, refusals }) {
  const stuck = (refusals ?? []).filter((row) => row.stuck).map((row) => row.line);
  const lines = [...(findings ?? []).map((row) => `finding: ${advice(row)}`), ...stuck];
  at("standing").hidden = !lines.length;
  at("standing").replaceChildren(...lines.map((line) => element("li", {}, line)));
}

const least = (all, of) => all.reduce((best, one) => (best && of(best) <= of(one) ? best : one), null);

/** The stop conditions: how far each is reached, and the time left where that can be foreseen. */
function goalsOf(status) {
  const goals = [];
  const { stop } = status;
  for (const name of ["env_steps", "trained_transitions"]) {
    if (stop[name] == null) continue;
    const rate = status[`${name}_per_s`];
    const left_s = rate > 0 ? (stop[name] - status[name]) / rate : null;
    goals.push({ text: `${count(stop[name])} ${plain(name)}`, share: status[name] / stop[name], left_s });
  }
  if (stop.minutes != null)
    goals.push({ text: `${stop.minutes} min`, share: status.t_s / (60 * stop.minutes), left_s: 60 * stop.minutes - status.t_s });
  if (stop.return != null) goals.unshift({ text: `a return of ${decimal(stop.return)}`, share: 0 });
  return goals;
}

export function showFigures(run) {
  const { status, about } = run;
  const lag = status.policy_lag;
  const rate = (per_s, what = "") => (isOver(run) ? "" : `${short(per_s)}${what} /s`);
  const limit = isOver(run) ? null : limitOf(run);
  const actors = about.learning.learners.length > 1 ? `, ${short(status.actor_updates_per_s)} actor` : "";
  at("figures").replaceChildren(
    figure("env steps", count(status.env_steps), rate(status.env_steps_per_s), capacity(run, "sampler", status.env_steps_per_s)),
    figure("transitions trained on", short(status.trained_transitions), rate(status.trained_transitions_per_s),
      limit ? { value: status.trained_transitions_per_s / limit.value, text: `of ${short(limit.value)} /s: ${limit.source}` }
        : capacity(run, "critic_learner", status.trained_transitions_per_s)),
    figure("updates", `${short(status.critic_updates)}`, rate(status.critic_updates_per_s, ` critic${actors}`),
      !isOver(run) && status.efficiency?.share >= 0.01 && { value: status.efficiency.share, text: `of ${short(status.efficiency.limit_flops_per_s / 1e9)} GFLOP/s that the cores or GPUs multiply` }),
    ...(status.replay_ratio.measured == null ? [] : [figure("replay ratio", decimal(status.replay_ratio.measured), `of ${short(status.replay_ratio.target)} wanted`)]),
    figure("policy lag", short(lag.recent_p50 ?? lag.p50), `p99 ${short(lag.recent_p99 ?? lag.p99)}, most ${short(lag.max)}${lag.bound == null ? "" : ` of ${lag.bound}`}`),
    figure("samples dropped", count(status.samples.dropped), `${count(status.samples.in_flight)} in flight of ${short(status.samples.produced)}`),
  );
  const { last, best } = status.evaluation;
  const { episodes } = status;
  const atSteps = (row) => (row.env_steps || status.env_steps ? `at ${short(row.env_steps)} env steps` : "");
  at("scores").replaceChildren(
    score("evaluation", last, last && listed(last.timed_out && episodesOf(last), atSteps(last)), "evaluation"),
    score("best", best, best && listed(`in ${episodesOf(best)}`, atSteps(best)), "best"),
    score("training", episodes.mean_return == null ? null : episodes, `in ${ended(episodes)}, of ${short(episodes.mean_length)} steps`, "training"),
  );
}

/** What the machine was measured to train on a second with batches as they are now; null where that was not. */
export function limitOf({ status, about }) {
  const { curve = [], source } = about.limits.trained_transitions_per_s ?? {};
  const size = status.gauges.batch_size ?? about.learning.batch_size;
  const value = new Map(curve).get(size);
  return value ? { value, source } : null;
}

/** What a role could do if it never waited for a peer: its rate over the share of the same time that it worked. */
function capacity(run, role, rate) {
  const shares = run.lately.map(({ workers }) => workers[role]?.busy).filter((share) => share != null);
  const busy = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  if (isOver(run) || !rate || !(busy >= 0.02)) return null;
  return { value: busy, text: `of ${short(rate / busy)} /s, were it never to wait for a peer` };
}

/** Of how many training episodes the means are, which a status of an older release does not say, and of how many in all. */
function ended({ count, num_in_means }) {
  const all = `${short(count)} episode${count === 1 ? "" : "s"}`;
  return num_in_means === count ? all : `the last ${num_in_means == null ? "" : `${num_in_means} `}of ${all}`;
}

const listed = (...parts) => parts.filter(Boolean).join(", ");

function figure(name, value, beside, limit) {
  const parts = [element("h3", {}, name), element("p", { class: "number" }, value), element("p", { class: "muted" }, beside)];
  if (limit) {
    const share = Math.min(1, limit.value);
    const bar = element("div", { class: "bar", role: "img", "aria-label": percent(share) }, element("div", { style: `width:${100 * share}%` }));
    parts.push(bar, element("p", { class: "muted small" }, `${percent(share)} ${limit.text}`));
  }
  return element("div", { class: "card figure" }, ...parts);
}

function score(name, row, beside, kind) {
  const value = row ? element("p", { class: "number" }, decimal(row.mean_return), element("small", {}, spread(row))) : element("p", { class: "number muted" }, "–");
  return element("div", { class: `score ${kind}` }, element("h3", {}, name), value, element("p", { class: "muted small" }, row ? beside : "none yet"));
}
