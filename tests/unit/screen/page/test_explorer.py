"""What is drawn of any number, and offered beside it, in node."""

from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.screen.page.story import entry_of


def test_a_run_beside_that_has_ended_is_offered_as_live_no_longer(told):
    """Though its name is the same."""
    script = """
const made = () => ({ setAttribute() {}, append(text) { this.text = text; } });
globalThis.document = { documentElement: null, createElement: made };
globalThis.location = { hash: "" };
const { Explorer } = await import("./explorer.js");
const beside = { dataset: {}, value: "", replaceChildren(...options) { this.options = options; } };
const explorer = { others: new Map(), beside };
const offered = ["running", "ended"].map((state) => {
  Explorer.prototype.offer.call({ ...explorer, states: { one: { algorithm: "sac", seed: 1, state } } });
  return beside.options.at(-1).text;
});
console.log(JSON.stringify(offered));
"""
    assert told(script) == ["one (sac, seed 1, live)", "one (sac, seed 1)"]


LONG = """
import { Explorer } from "./explorer.js";
let looks = 0;
const look = (value) => { looks++; return value; };
const at = (t_s) => ({
  get t_s() { return look(t_s); },
  get env_steps() { return look(10 * t_s); },
  trained_transitions: t_s,
});
const points = Array.from({ length: 3000 }, (_, t_s) => at(t_s));
const rows = Array.from({ length: 3000 }, (_, i) => ({ t_s: i, env_steps: 10 * i - 45, y: i }));
const explorer = { axis: { value: "trained_transitions" } };
const [x] = Explorer.prototype.table.call(explorer, { points }, { rows, of: (row) => row.y });
console.log(JSON.stringify({ looks, x }));
"""


def test_a_long_runs_scores_over_transitions_cost_little(told):
    """They are placed again with each status."""
    found = told(LONG)
    assert found["x"] == list(range(2995))
    assert found["looks"] < 100_000


RETURNS = """
import { numbersOf } from "./explorer.js";
import { Run } from "./run.js";
GIVEN
const run = new Run();
for (const entry of entries) run.take(entry);
console.log(JSON.stringify([...numbersOf(run).keys()].filter((name) => name.includes("return"))));
"""


def test_the_mean_of_training_is_told_from_that_of_evaluations_by_its_name(told):
    """In what is offered, in the legend and in the CSV, each of which names no other thing."""
    run = RunRecord(topology.load("pendulum"))
    status = run.status("training", {}, 1.0)
    look = {"version": 1, "env_steps": 500, "num_episodes": 10, "mean_return": -150.0, "std_return": 1.0}
    entries = [entry_of("status", 1.0, status), entry_of("evaluation", 2.0, look)]
    expected = ["training_return", "training_return_std", "evaluation: mean_return", "evaluation: std_return"]
    assert told(RETURNS, entries=entries) == expected
