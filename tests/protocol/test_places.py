"""Where the environments of the example samplers stand among all of a run."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from spreeze_zmq.components.sampler.__main__ import Collector

EXAMPLES = Path(__file__).parents[2] / "components" / "examples"
INITIAL, NUM = 3, 4


def shipped(index):
    """Of the shipped sampler."""
    count = SimpleNamespace(initial=INITIAL)
    plan = SimpleNamespace(components={"sampler": SimpleNamespace(count=count)})
    component = SimpleNamespace(plan=plan, index=index)
    return Collector.places(SimpleNamespace(component=component, num_envs=NUM))


def in_python(index):
    """Of the example in Python."""
    names = {}
    exec((EXAMPLES / "sampler_python" / "policy.py").read_text(), names)
    return names["places"](index, NUM, INITIAL)


def in_javascript(index):
    """Of the example in JavaScript."""
    return of_javascript("policy.js", f"its.places({index}, {NUM}, {INITIAL})")


def of_javascript(name, expression):
    """What an expression over a file of the example gives."""
    file = json.dumps(str(EXAMPLES / "sampler_node" / name))
    script = f"const its = require({file}); console.log(JSON.stringify({expression}))"
    try:
        done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no node: apt install nodejs")
    return json.loads(done.stdout)


@pytest.mark.parametrize("places", [in_python, in_javascript])
def test_an_example_explores_where_the_shipped_sampler_would(places):
    """Samplers that come later too: they do not all stand at the end."""
    for index in (0, INITIAL - 1, INITIAL, INITIAL + 6):
        np.testing.assert_allclose(places(index), shipped(index), atol=1e-6)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            "checkHeader",
            {"protocol": 1, "kind": "stop", "sender": "b", "incarnation": 1, "sequence": 0}
            | {"arrays": [], "fields": {}},
            {"protocol": 2, "kind": 1, "sender": None, "incarnation": -1, "sequence": 0.5}
            | {"arrays": None, "fields": []},
        ),
        ("checkStop", {"roles": ["*"], "reason": "x"}, {"roles": ["*", 1], "reason": 1}),
    ],
)
def test_the_example_in_javascript_obeys_nothing_of_a_message_that_breaks_a_rule(check, right, wrong):
    """Though what it would obey stands in it."""
    messages = [right, *({**right, key: value} for key, value in wrong.items())]
    took = f"one => {{ try {{ its.{check}(one); return true }} catch {{ return false }} }}"
    found = of_javascript("messages.js", f"{json.dumps(messages)}.map({took})")
    assert found == [True, *[False] * len(wrong)]
