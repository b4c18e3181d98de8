"""The fields in which a person asks for another value of a setting, in node."""

import json

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.plan import moves, topology
from spreeze_zmq.screen.page import story
from spreeze_zmq.screen.page.server import wish

FIELDS = """
const made = () => ({
  inner: [], heard: {}, says: "",
  setAttribute(name, value) { this[name] = value; },
  addEventListener(name, call) { this.heard[name] = call; },
  setCustomValidity(says) { this.says = says; },
  append(...inner) { this.inner.push(...inner); },
  replaceChildren(...inner) { this.inner = inner; },
  querySelector: () => table,
});
const table = made();
globalThis.document = { createElement: made };
const { Settings } = await import("./settings.js");
GIVEN
const settings = new Settings(made(), { about }, () => true);
settings.begin();
const takes = (field, value) => {
  field.valueAsNumber = value;
  field.heard.input?.();
  return value >= (field.min ?? -Infinity) && value <= (field.max ?? Infinity) && !field.says;
};
const fieldOf = (row) => row.inner[2].inner[0].inner[0];
const taken = (row) => [row["data-name"], values.map((value) => takes(fieldOf(row), value))];
const cellOf = ([name, cell]) => [name, cell.textContent];
settings.draw();
const shown = Object.fromEntries([...settings.now].map(cellOf));
console.log(JSON.stringify({ taken: Object.fromEntries(table.inner.map(taken)), shown }));
"""


def test_a_field_takes_what_the_run_takes(told):
    """The broker's second refusal of one kind would be shown to nobody."""
    plan = topology.load("pendulum")
    values = [-1e20, -1e15, -1.0, 0.0, 1e-9, 0.5, 1.0, 1.5, 10_000.0, 10_001.0, 1e15, 2e15, 1e39, 1e58]

    def is_granted(option, value):
        request = wish(json.dumps({"option": option, "value": value}))
        if request is None:
            return False
        try:
            return moves.checked(plan, option, request["value"]) == value
        except InputError:
            return False

    taken = told(FIELDS, about=story.run_entry(plan, live=True)["about"], values=values)["taken"]
    assert taken.keys() == moves.moves_of(plan).keys()
    assert taken == {option: [is_granted(option, value) for value in values] for option in taken}
    assert len({*map(tuple, taken.values())}) > 1


@pytest.mark.parametrize(
    ("stated", "shown"),
    [
        ("0.001", "0.001"),
        ("{critic=1e-3, policy=3e-4}", "critic 0.001, policy 0.0003"),
        ("{from=1e-3, to=1e-4}", "0.001 to 0.0001"),
        ("{critic={from=1e-3, to=1e-4}, policy=3e-4}", "critic 0.001 to 0.0001, policy 0.0003"),
    ],
)
def test_what_the_topology_states_is_shown_beside_its_field(told, stated, shown):
    """In whatever form: a number by network, a schedule, a schedule by network."""
    plan = topology.load("pendulum", [f"algorithm.learning_rate={stated}"])
    found = told(FIELDS, about=story.run_entry(plan, live=True)["about"], values=[])["shown"]
    assert found["learning_rate"] == shown
    assert not [text for text in found.values() if "undefined" in text or "object" in text]
