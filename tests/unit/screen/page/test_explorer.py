"""What is drawn of any number, and offered beside it, in node."""


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
