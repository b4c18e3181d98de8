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
    file = json.dumps(str(EXAMPLES / "sampler_node" / "policy.js"))
    script = f"console.log(JSON.stringify(require({file}).places({index}, {NUM}, {INITIAL})))"
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
