"""What the page's scripts make of a run, in node: they get what a server sends, and draw into nothing."""

from itertools import pairwise

from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.screen.page import story


def status_entry(t_s, plan=None, target=None):
    """A status as a server sends it."""
    plan = plan or topology.load("pendulum")
    balancer = Balancer(plan)
    status = RunRecord(plan).status("training", balancer.status(), t_s)
    if target is not None:
        status["replay_ratio"]["target"] = target
    return story.entry_of("status", t_s, status)


A_DAY = """
import { Run } from "./run.js";
GIVEN
const run = new Run();
for (let t_s = 0; t_s <= 86400; t_s++) {
  run.take({ ...status, t_s, point: { ...status.point, t_s } });
  if (t_s % 3 == 0) run.take({ topic: "evaluation", t_s, about: { version: t_s, mean_return: 0 } });
}
const times = (rows) => rows.map((row) => row.t_s);
const [points, evaluations] = [times(run.points), times(run.evaluations)];
console.log(JSON.stringify({ points, evaluations, known: run.known.size }));
"""


def test_a_page_that_stays_open_for_a_day_keeps_the_whole_curve_and_does_not_grow(told):
    """A status each second, an evaluation each third one."""
    found = told(A_DAY, status=status_entry(0.0))
    for times in (found["points"], found["evaluations"]):
        assert (times[0], times[-1]) == (0, 86_400)
        assert 700 < len(times) <= 3000
        assert max(after - before for before, after in pairwise(times)) <= 128
    assert found["known"] <= 20_000


TRANSITIONS = """
import { Explorer } from "./explorer.js";
const point = (env_steps, i) => ({ t_s: i, env_steps, trained_transitions: 64 * (i + 1) });
const points = [500, 900].map(point);
const rows = [100, 600, 900].map((env_steps, i) => ({ t_s: i, env_steps, y: i + 1 }));
const explorer = { axis: { value: "trained_transitions" } };
const number = { rows, of: (row) => row.y };
console.log(JSON.stringify(Explorer.prototype.table.call(explorer, { points }, number)));
"""


DATA_ALONE = """
import { Explorer } from "./explorer.js";
const point = (trained_transitions, i) => ({ t_s: i + 1, env_steps: 0, trained_transitions });
const points = [64, 128, 192].map(point).concat(LATER);
const rows = [0.5, 1.5, 3.5].map((t_s, y) => ({ t_s, env_steps: 0, y }));
const explorer = { axis: { value: "trained_transitions" } };
const number = { rows, of: (row) => row.y };
console.log(JSON.stringify(Explorer.prototype.table.call(explorer, { points }, number)));
"""


def test_scores_of_a_run_on_data_alone_have_their_places_over_transitions(told):
    """By the time, as `spreeze compare` has them: it samples nothing that would tell them apart. A run with
    samplers that goes on from it moves none of them.
    """
    later = "{ t_s: 9, env_steps: 900, trained_transitions: 999 }"
    for more in ("[]", f"[{later}]"):
        assert told(DATA_ALONE.replace("LATER", more)) == [[64, 192], [1, 2]]


def test_what_was_evaluated_before_the_first_point_has_no_place_over_transitions(told):
    """How many had been trained on is not known."""
    assert told(TRANSITIONS) == [[64, 128], [2, 3]]


LIMIT = """
import { limitOf } from "./head.js";
GIVEN
const at = (batch_size) => limitOf({ about, status: { gauges: batch_size ? { batch_size } : {} } });
console.log(JSON.stringify([at(null), at(64), at(2048), at(100)].map((limit) => limit?.value ?? null)));
"""


def test_the_machines_limit_is_that_of_the_batches_as_they_are_now(told):
    """Also after a move; none is shown for a size that was not measured."""
    plan = topology.load("pendulum", ["algorithm.batch_size=2048"])
    assert told(LIMIT, about=story.run_entry(plan, live=True)["about"]) == [None] * 4
    plan.measured["batch_size"] = {"chosen": 2048, "reaches": 1.0, "curve": [[64, 5e4], [2048, 9e4]]}
    assert told(LIMIT, about=story.run_entry(plan, live=True)["about"]) == [9e4, 5e4, 9e4, None]


DRAWN = """
globalThis.document = { documentElement: null, getElementById: () => null };
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
globalThis.uPlot = { join: (tables) => tables.flat(), paths: { stepped: () => null } };
GIVEN
const { Charts } = await import("./charts.js");
const { Run } = await import("./run.js");
const drawn = {};
class Seen extends Charts {
  show(id, data, series) {
    drawn[id] = { data, labels: series.map((one) => one.label) };
  }
}
const run = new Run();
for (const entry of entries) run.take(entry);
"""
RATIO = f"""{DRAWN}
new Seen(run).draw();
console.log(JSON.stringify(drawn.ratio));
"""
GOAL = f"""{DRAWN}
run.status = {{ stop: {{ return: 5 }} }};
run.points = Array.from({{ length: 200_000 }}, (_, t_s) => ({{ t_s, training_return: t_s % 10 }}));
new Seen(run).learning();
console.log(JSON.stringify(drawn.learning.labels));
"""


LOOKS = f"""{DRAWN}
const {{ numbersOf }} = await import("./explorer.js");
new Seen(run).learning();
const offered = numbersOf(run).get("evaluation: mean_return");
console.log(JSON.stringify([drawn.learning.data[5], offered.rows.map(offered.of)]));
"""


def test_a_look_that_time_has_cut_is_drawn_only_where_none_is_whole(told):
    """Where each step costs, what was cut scores best; `spreeze compare` draws the same ones."""
    scored = {"version": 1, "num_episodes": 5, "std_return": 1.0, "timed_out": True, "num_truncated": 4}
    cut = [
        story.entry_of("evaluation", t_s, {**scored, "env_steps": int(t_s), "mean_return": mean})
        for t_s, mean in ((1.0, -10.0), (2.0, -20.0))
    ]
    whole = {**scored, "env_steps": 3, "mean_return": -90.0, "timed_out": False, "num_truncated": 0}
    for entries, expected in (
        (cut, [-10.0, -20.0]),
        ([*cut, story.entry_of("evaluation", 3.0, whole)], [-90.0]),
    ):
        assert told(LOOKS, entries=entries) == [expected, expected]


def test_the_wanted_replay_ratio_is_what_was_wanted_at_the_time(told):
    """A change of it does not change the past."""
    plan = topology.load("pendulum")
    entries = [status_entry(t_s, plan, target) for t_s, target in enumerate((32.0, 32.0, 8.0))]
    ratio = told(RATIO, entries=[story.run_entry(plan, live=True), *entries])
    assert (ratio["labels"], ratio["data"][2]) == (["measured", "wanted"], [32.0, 32.0, 8.0])


def test_a_goal_is_drawn_beside_any_number_of_points(told):
    """More than a call takes arguments."""
    assert told(GOAL, entries=[])[-1] == "goal"


SCORES = """
globalThis.document = {};
import { decimal, episodesOf } from "./format.js";
import { Run } from "./run.js";
GIVEN
const run = new Run();
run.take({ topic: "evaluation", t_s: 1, about });
const shown = [900, 0.92, 0.0042].map(decimal);
console.log(JSON.stringify([run.events[0].line, episodesOf({ num_episodes: 5 }), shown]));
"""


def test_the_page_rounds_no_small_return_away_and_says_what_time_has_cut(told):
    """As the terminal has it."""
    about = {"version": 1, "mean_return": 0.9234, "std_return": 0.0042, "num_episodes": 5, "best": True}
    line, whole, shown = told(SCORES, about={**about, "timed_out": True, "num_truncated": 4})
    assert line == "new best policy: 0.92 ± 0.0042 in 5 episodes, 4 of them cut by time"
    assert (whole, shown) == ("5 episodes", ["900.0", "0.92", "0.0042"])
    line, *_ = told(SCORES, about={**about, "num_episodes": 1})
    assert line == "new best policy: 0.92 in 1 episode"


FIGURES = """
const places = {};
const made = () => ({ setAttribute() {}, append(...inner) { this.inner = inner; } });
const place = () => ({ replaceChildren(...inner) { this.inner = inner; } });
globalThis.document = { createElement: made, getElementById: (id) => (places[id] ??= place()) };
const { showFigures } = await import("./head.js");
const { Run } = await import("./run.js");
GIVEN
const said = (one) => (one.inner ? one.inner.map(said).join("|") : String(one));
const heard = new Run();
for (const status of statuses) heard.take({ topic: "status", t_s: status.t_s, about: status });
const shown = (ended, state) => {
  showFigures(Object.assign(heard, { ended, lost: run.lost, about: { ...run.about, state } }));
  return said(places.figures) + said(places.scores);
};
const seen = [shown(null, "running"), shown("minutes 1", "running"), shown(null, "ended")];
run.lost = "not connected";
console.log(JSON.stringify([...seen, shown(null, "running")]));
"""


def test_a_run_that_is_over_has_no_rates(told):
    """Its last status is of a time in which the last episodes were played, and nothing else done. Nor has one
    that is not heard, whose last status is old.
    """
    plan = topology.load("pendulum")
    about, status = story.run_entry(plan, live=True)["about"], status_entry(1.0, plan)["about"]
    used = {"flops_per_s": 4e10, "limit_flops_per_s": 1e11, "share": 0.4}
    status |= {"env_steps_per_s": 9.0, "efficiency": used}
    live, *over = told(FIGURES, run={"about": about}, statuses=[status])
    assert "env steps|0|9 /s" in live
    assert "40 % of 100 GFLOP/s" in live
    assert all("/s" not in figures for figures in over)


def test_what_a_role_could_do_is_of_the_time_that_its_rate_is_of(told):
    """A rate is the mean of five seconds, and a sampler that makes a rollout each second works in every
    second status alone: by the newest one it could do 2,500 steps a second, or there was no telling.
    """
    plan = topology.load("pendulum")
    about, status = story.run_entry(plan, live=True)["about"], status_entry(1.0, plan)["about"]
    status |= {"env_steps_per_s": 1000.0}
    shares = [1.0, *[0.4, 0.0] * 5, 0.4]  # the first is older
    statuses = [
        {**status, "t_s": 0.5 * tick, "workers": {"sampler": {"count": 1, "busy": busy}}}
        for tick, busy in enumerate(shares)
    ]
    for heard in (statuses[:-1], statuses):
        live, *_ = told(FIGURES, run={"about": about}, statuses=heard)
        assert "20 % of 5,000 /s, were it never to wait for a peer" in live


def test_a_score_has_the_env_steps_of_a_run_that_takes_some(told):
    """On data alone there are none."""
    plan = topology.load("pendulum")
    about, status = story.run_entry(plan, live=True)["about"], status_entry(1.0, plan)["about"]
    look = {"mean_return": -5.0, "std_return": 1.0, "num_episodes": 5, "env_steps": 0}
    status["evaluation"] = {"last": look, "best": {**look, "timed_out": True, "num_truncated": 4}}
    none, *_ = told(FIGURES, run={"about": about}, statuses=[status])
    assert "-5.00| ± 1.00|in 5 episodes" in none
    assert "at 0" not in none
    some, *_ = told(FIGURES, run={"about": about}, statuses=[{**status, "env_steps": 9}])
    assert "4 of them cut by time, at 0 env steps" in some


NUMBERS = """
globalThis.document = {};
import { numbersOf } from "./explorer.js";
import { Run } from "./run.js";
GIVEN
const run = new Run();
for (const entry of entries) run.take(entry);
const values = ([name, { rows, of }]) => [name, rows.map((row) => of(row) ?? null)];
console.log(JSON.stringify(Object.fromEntries([...numbersOf(run)].map(values))));
"""


def test_a_gauge_takes_the_name_of_no_figure_of_the_run(told):
    """The learner's own ratio is of another time than the run's."""
    entry = status_entry(1.0)
    entry["point"] |= {"replay_ratio": 2, "gauges": {"replay_ratio": 6.5, "q_mean": 1}}
    found = told(NUMBERS, entries=[entry])
    assert (found["replay_ratio"], found["q_mean"]) == ([2], [1])


def test_a_number_of_the_environment_takes_the_name_of_no_figure_of_an_evaluation(told):
    """In what is offered, drawn and downloaded; an info may have any names."""
    look = {"version": 1, "mean_return": -5.0, "max": 7.0, "info": {"mean_return": 3.0, "max": 4.0}}
    found = told(NUMBERS, entries=[{"topic": "evaluation", "t_s": 3.0, "about": look}])
    assert (found["evaluation: mean_return"], found["evaluation: max"]) == ([-5.0], [7.0])
    assert (found["evaluation info: mean_return"], found["evaluation info: max"]) == ([3.0], [4.0])


def test_a_number_that_the_newest_has_not_keeps_its_history(told):
    """As of an evaluation none of whose episodes had it, or of a learner that has just gone back."""
    statuses = [status_entry(1.0), status_entry(2.0)]
    statuses[0]["point"]["gauges"] = {"alpha": 0.2}
    looks = [{"version": 1, "mean_return": -5.0, "info": {"laps": 3.0}}, {"version": 2, "mean_return": -4.0}]
    looks[0]["interval_low"] = -6.0
    evaluations = [{"topic": "evaluation", "t_s": 3.0 + i, "about": look} for i, look in enumerate(looks)]
    found = told(NUMBERS, entries=[*statuses, *evaluations])
    names = ("alpha", "evaluation info: laps", "evaluation: interval_low", "evaluation: mean_return")
    assert [found[name] for name in names] == [[0.2, None], [3.0, None], [-6.0, None], [-5.0, -4.0]]


def test_a_wish_that_nobody_hears_stays_in_its_field(told):
    """The connection is lost; once it is back, it is sent."""
    script = """
import { Settings } from "./settings.js";
const field = { value: "0.5", valueAsNumber: 0.5 };
const heard = [];
let connected = false;
const settings = new Settings(null, null, (wish) => connected && heard.push(wish) > 0);
settings.send("tau", field);
const kept = field.value;
connected = true;
settings.send("tau", field);
console.log(JSON.stringify({ kept, left: field.value, heard }));
"""
    assert told(script) == {"kept": "0.5", "left": "", "heard": [{"option": "tau", "value": 0.5}]}


HEAD = """
const places = {};
const made = () => ({ dataset: {}, style: {}, replaceChildren() {} });
globalThis.document = { getElementById: (id) => (places[id] ??= made()) };
const { showHead } = await import("./head.js");
const { Run } = await import("./run.js");
GIVEN
const run = new Run();
for (const entry of entries) run.take(entry);
const shown = (lost) => {
  run.lost = lost;
  showHead(run);
  return [places.state.textContent, places.left.textContent];
};
console.log(JSON.stringify(["", "not connected", "silent", ""].map(shown)));
"""


def test_a_run_that_is_not_heard_is_not_said_to_train(told):
    """Nor how long it will."""
    plan = topology.load("pendulum", ["run.stop.minutes=10"])
    heard, *lost, again = told(HEAD, entries=[story.run_entry(plan, live=True), status_entry(1.0, plan)])
    assert heard == again
    assert heard[0] == "training"
    assert heard[1].startswith("9:59 left")
    assert lost == [["not connected", ""], ["silent", ""]]


def test_the_return_in_training_says_of_how_many_episodes_it_is(told):
    """Of the last of all, those of the runs before among them; an older release's status names no number."""
    plan = topology.load("pendulum")
    about, status = story.run_entry(plan, live=True)["about"], status_entry(1.0, plan)["about"]
    means = {"mean_return": -5.0, "std_return": 1.0, "mean_length": 200.0}
    for counts, said in (
        ({"count": 1234, "num_in_means": 100}, "in the last 100 of 1,234 episodes, of 200 steps"),
        ({"count": 1, "num_in_means": 1}, "in 1 episode, of 200 steps"),
        ({"count": 1234}, "in the last of 1,234 episodes, of 200 steps"),
    ):
        heard = [{**status, "episodes": {**means, **counts}}]
        assert f"-5.00| ± 1.00|{said}|" in told(FIGURES, run={"about": about}, statuses=heard)[0] + "|"
