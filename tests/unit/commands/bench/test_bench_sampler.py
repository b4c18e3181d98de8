"""The sampler section, in environments whose spaces the shipped tasks do not have."""

from contextlib import nullcontext
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from spreeze_zmq.commands.bench import physics, sampler
from spreeze_zmq.commands.bench.figures import Job, Rate
from spreeze_zmq.envs.engines import envpool_batch
from spreeze_zmq.policy import actor
from tests.system.camera import Camera


class Sharp(Camera):
    """A camera with pixels enough for convolutions."""

    observation_space = Dict({**Camera.observation_space.spaces, "lens": Box(0, 255, (36, 36, 3), np.uint8)})

    def _seen(self):
        return {**super()._seen(), "lens": np.zeros((36, 36, 3), np.uint8)}


class Pool:
    """In the place of EnvPool's MountainCars, which stand still; notes with how many threads each is made."""

    made: list[int] = []  # noqa: RUF012

    def __init__(self, env_id, num_envs, num_threads, **config):
        Pool.made.append(num_threads)
        one = gymnasium.make(env_id)
        about = {"observation_space": one.observation_space, "action_space": one.action_space}
        self.spec = SimpleNamespace(**about, config=SimpleNamespace(max_episode_steps=999))
        self.obs = np.zeros((num_envs, 2), np.float32)

    def reset(self, rows):
        """All of them."""
        return self.obs, {"env_id": rows}

    def step(self, actions):
        """None ends."""
        never = np.zeros(len(self.obs), bool)
        return self.obs, np.zeros(len(self.obs)), never, never, {}

    def close(self):
        """Nothing to end."""


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


def test_an_engine_with_threads_of_its_own_has_one(monkeypatch):
    """As in a sampler: its limit is that of one core."""
    monkeypatch.setattr(Pool, "made", [])
    monkeypatch.setattr(envpool_batch, "why_not", lambda env_id: "")
    monkeypatch.setattr(envpool_batch, "_envpool", lambda: SimpleNamespace(make=Pool))
    monkeypatch.setattr(envpool_batch, "available_cores", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(physics, "NUM_STATES", 2)
    monkeypatch.setattr(sampler, "running_sampler", lambda *_: nullcontext(Whole()))
    section = sampler.measure(Job("MountainCarContinuous-v0", "sac", 0.01))
    assert section.figures[0].note == "envpool"
    assert {*Pool.made} == {1}


def test_what_a_library_alone_has_is_compared_with_nothing(monkeypatch):
    """It is no unknown environment, and the other sections follow."""
    monkeypatch.setattr(envpool_batch, "why_not", lambda env_id: "")
    section = sampler.measure(Job("Pong-v5", "dqn", 0.01))
    assert not section.figures
    assert section.about.endswith("has no limit to compare with: Gymnasium does not have it, EnvPool does")
