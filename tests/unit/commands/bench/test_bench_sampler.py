"""The sampler section, in environments whose spaces the shipped tasks do not have."""

from contextlib import nullcontext

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from spreeze_zmq.commands.bench import physics, sampler
from spreeze_zmq.commands.bench.figures import Job, Rate
from spreeze_zmq.policy import actor
from tests.system.camera import Camera


class Sharp(Camera):
    """A camera with pixels enough for convolutions."""

    observation_space = Dict({**Camera.observation_space.spaces, "lens": Box(0, 255, (36, 36, 3), np.uint8)})

    def _seen(self):
        return {**super()._seen(), "lens": np.zeros((36, 36, 3), np.uint8)}


class Whole:
    """In the place of a sampler's process, which needs a second and more to start."""

    def turn(self, turn_s):
        return Rate(1.0, 1.0)

    def processes(self):
        return [self]


@pytest.mark.parametrize(
    ("env_id", "algorithm"),
    [("tests.unit.data.made:Parts", "dqn"), ("tests.unit.commands.bench.test_bench_sampler:Sharp", "ppo")],
    ids=["actions with a start", "an encoder for each part"],
)
def test_the_environments_of_users_have_a_limit_too(env_id, algorithm, monkeypatch):
    """Stepped with actions that they take, by a policy of whatever form."""
    monkeypatch.setattr(actor, "_loaders", [])
    monkeypatch.setattr(sampler, "NUM_ENVS", 2)
    monkeypatch.setattr(physics, "NUM_STATES", 2)
    monkeypatch.setattr(sampler, "running_sampler", lambda *_: nullcontext(Whole()))
    section = sampler.measure(Job(env_id, algorithm, 0.01, "cpu", False))
    assert section.figures[0].limit > 0
    assert section.figures[0].reached > 0


def test_where_actions_are_illegal_at_times_nothing_is_measured():
    """The same actions are stepped again and again; it says so, and the other sections follow."""
    section = sampler.measure(Job("tests.masked:Game", "ppo", 0.01, "cpu", False))
    assert not section.figures
    assert "says at each step which actions are legal" in section.about
