"""Where the environments of the example samplers stand among all of a run."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq.policy import places

EXAMPLES = Path(__file__).parents[2] / "components" / "examples"
NUM = 4


def in_python(index):
    """Of the example in Python."""
    names = {}
    exec((EXAMPLES / "sampler_python" / "policy.py").read_text(), names)
    return names["places"](index, NUM)


def in_javascript(index):
    """Of the example in JavaScript."""
    return of_javascript("policy.js", f"its.places({index}, {NUM})")


def of_javascript(name, expression):
    """What an expression over a file of the example gives."""
    file = json.dumps(str(EXAMPLES / "sampler_node" / name))
    script = f"const its = require({file}); console.log(JSON.stringify({expression}))"
    try:
        done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no node: apt install nodejs")
    return json.loads(done.stdout)


@pytest.mark.parametrize("num", [1, 4, 16])
def test_the_samplers_that_a_run_keeps_explore_in_all_ways(num):
    """The balancer stops those of the highest numbers: the first few still cover all places, neighbours at
    most twice as far apart as evenly.
    """
    for count in range(1, 63):
        found = np.sort(np.concatenate([places(num, index) for index in range(count)]))
        apart = np.diff(found, prepend=0.0, append=1.0)
        assert apart.max() <= 2 / (count * num), f"{count} samplers of {num} environments"


@pytest.mark.parametrize("of_example", [in_python, in_javascript])
def test_an_example_explores_where_the_shipped_sampler_would(of_example):
    """Each environment of each sampler."""
    for index in (0, 2, 3, 9):
        np.testing.assert_allclose(of_example(index), places(NUM, index), atol=1e-6)


def test_the_random_numbers_of_the_example_in_javascript_have_the_long_period_of_xoshiro128():
    """The words that its authors' program draws of the state 1, 2, 3, 4; and a word comes again before all
    2^32 have come, where it did not if a word were the whole state: 32 are expected twice among 2^19.
    """
    draws = "const one = its.randomOf([1, 2, 3, 4]); return Array.from({length: 2 ** 19}, one.uniform)"
    drawn = "(() => { " + draws + " })()"
    words = np.array(of_javascript("random.js", drawn)) * 2**32
    assert words[:6].tolist() == [11520, 0, 5927040, 70819200, 2031721883, 1637235492]
    assert 10 < len(words) - len(np.unique(words)) < 80
    assert np.mean(words) / 2**32 == pytest.approx(0.5, abs=0.003)


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
