"""An environment whose code has changed since its run began is refused by everybody who would play in it,
also where all shapes are as they were.
"""

import json
import os

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.recorded import recorded
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.evaluation.arena import Arena
from spreeze_zmq.evaluation.stage import open_stage

#: What the module's code says, unless a test writes another to this variable, which workers have, too.
CODE = {"high": (80.0, 1.0), "parts": ("hook", "rail"), "camera": "uint8", "start": 0, "dict": False}
CHANGED = "CODE_OF_TEST_SAME"


def code(name):
    """What the code says now."""
    return {**CODE, **json.loads(os.environ.get(CHANGED, "{}"))}[name]


class Crane(gymnasium.Env):
    """As the code has it."""

    def __init__(self):
        parts = {name: Box(-9, 9, (2,), np.float64) for name in code("parts")}
        self.observation_space = Dict({"camera": Box(0, 255, (1, 1, 3), code("camera")), **parts})
        self.action_space = Box(np.zeros(2, np.float32), np.array(code("high"), np.float32))

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        return self.observed(), {}

    def step(self, action):
        """End."""
        return self.observed(), 1.0, True, False, {}

    def observed(self):
        """All zeros."""
        camera = np.zeros((1, 1, 3), code("camera"))
        return {"camera": camera, **{name: np.zeros(2) for name in code("parts")}}


CHANGES = {
    "bounds": ({"high": (80.0, 0.1)}, r"action_high\[1\] is 0\.1\d* here and was 1\.0 when its run began"),
    "order": (
        {"parts": ("gantry", "hook")},
        r'obs_parts\[1\] is "gantry \[2\]" here and was "hook \[2\]" when its run began',
    ),
    "pixels": (
        {"camera": "float32"},
        r'obs_parts\[0\] is "camera \[1, 1, 3\]" here and was "camera \[1, 1, 3\] of pixels"',
    ),
}
READERS = {
    "eval, samplers": lambda spec: envs.remade(spec, 2).close(),
    "in workers": lambda spec: envs.remade(spec, 2, num_workers=1).close(),
    "evaluator": lambda spec: Arena(spec, 2, envs.Timing("gymnasium")).close(),
    "play, page": lambda spec: open_stage(spec).env.close(),
    "record": lambda spec: recorded(spec, print)[0].close(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_is_refused_where_shapes_are_the_same(reader, change, monkeypatch):
    """By each that plays, with both values; what is as it was is played in."""
    changed, said = CHANGES[change]
    spec = envs.probe(f"{__name__}:Crane")
    READERS[reader](spec)
    monkeypatch.setenv(CHANGED, json.dumps(changed))
    with pytest.raises(InvalidEnvironment, match=said):
        READERS[reader](spec)


class Lamp(gymnasium.Env):
    """Its actions count from where the code says; what it sees stands alone, or in a Dict."""

    def __init__(self):
        alone = Box(-9, 9, (2,), np.float32)
        self.observation_space = Dict({"lux": alone}) if code("dict") else alone
        self.action_space = Discrete(3, start=code("start"))


class Hand(gymnasium.Env):
    """Sees cards, and flags of which are out."""

    observation_space = Dict({"hand": Box(0, 52, (5,), np.uint8), "out": Box(0, 1, (52,), np.uint8)})
    action_space = Discrete(5)

    def reset(self, **_):
        """None."""
        return self.observation_space.sample(), {}

    def step(self, action):
        """Nothing happens."""
        return self.observation_space.sample(), 0.0, False, False, {}


def test_what_an_earlier_release_did_not_say_of_bytes_differs_from_nothing():
    """The largest number of a part that is no image."""
    plain = json.loads(json.dumps(envs.probe(f"{__name__}:Hand").to_dict()))
    assert [part.pop("max") for part in plain["obs_parts"]] == [52, 1]
    envs.remade(EnvironmentSpec.from_dict(plain), 1).close()
    plain["obs_parts"][0]["max"] = 51
    with pytest.raises(InvalidEnvironment, match=r'"hand \[5\] up to 52" here and was "hand \[5\] up to 51"'):
        envs.remade(EnvironmentSpec.from_dict(plain), 1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("start", 1, r"its action_start is \[1\] here and was"),
        ("dict", True, r'its obs_parts is \["lux \[2\]"\] here and was'),
    ],
)
def test_what_was_empty_and_no_longer_is_differs(name, value, said, monkeypatch):
    """Actions that count from another number; a Box that became a Dict of the same size."""
    spec = EnvironmentSpec.from_dict(envs.probe(f"{__name__}:Lamp").to_dict())
    envs.remade(spec, 1).close()
    monkeypatch.setenv(CHANGED, json.dumps({name: value}))
    with pytest.raises(InvalidEnvironment, match=said):
        envs.remade(spec, 1)
