"""What fails in EnvPool's environments, of which a double stands in where it is not installed."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from spreeze_zmq.envs.engines import envpool_batch


class Pool:
    """Counts steps; environment 1 gives NaN at its third one. It is seeded when it is made."""

    config = SimpleNamespace(max_episode_steps=100)
    spec = SimpleNamespace(
        observation_space=Box(-1e9, 1e9, (1,)), action_space=Box(-1.0, 1.0, (1,)), config=config
    )
    made, config_given = 0, {}

    def __init__(self, env_id, num_envs, **config):
        Pool.made += 1
        Pool.config_given = config
        self.steps = np.zeros(num_envs)

    def reset(self, rows):
        """Of some; EnvPool's own returns these alone."""
        self.steps[rows] = 0
        return self.steps[rows, None].copy(), {"env_id": rows}

    def step(self, actions):
        """None ends by itself."""
        self.steps += 1
        never, obs = np.zeros(len(self.steps), bool), self.steps[:, None].copy()
        obs[1] = np.nan if self.steps[1] == 3 else obs[1]
        return obs, np.ones(len(self.steps)), never, never, {}

    def close(self):
        """Nothing to end."""


@pytest.fixture
def batch(monkeypatch):
    """Three environments, of which two failures are tolerated."""
    monkeypatch.setattr(Pool, "made", 0)
    monkeypatch.setattr(envpool_batch, "why_not", lambda env_id: "")
    monkeypatch.setattr(envpool_batch, "_envpool", lambda: SimpleNamespace(make=Pool))
    made = envs.make("Fake-v0", 3, backend="envpool", max_failures=2)
    made.reset(seed=0)
    return made


def test_one_bad_number_costs_one_episode(batch):
    """The others go on; more failures than are tolerated end the batch."""
    for _ in range(2):
        batch.step(np.zeros((3, 1)))
    obs, reward, _, truncated, info = batch.step(np.zeros((3, 1)))
    assert truncated.tolist() == info["failed"].tolist() == [False, True, False]
    assert obs[:, 0].tolist() == [3, 0, 3]
    assert (info["final_obs"][1, 0], reward[1]) == (2.0, 0.0)
    assert Pool.made == 1
    for _ in range(5):
        batch.step(np.zeros((3, 1)))
    with pytest.raises(EnvironmentFailure, match="3 failures within 100 episodes"):
        batch.step(np.zeros((3, 1)))


@pytest.mark.parametrize(
    ("variable", "stated", "given"),
    [
        ("1", {}, 1),  # of a sampler among others
        ("4", {}, 3),  # more than environments would idle
        ("2,1", {}, 2),
        (None, {}, 2),  # of a script alone: the cores that it may use
        ("1", {"num_threads": 0}, 0),  # in EnvPool as many as the machine has cores
    ],
)
def test_it_has_no_more_threads_than_its_process_was_given(batch, monkeypatch, variable, stated, given):
    """Fifteen samplers on sixteen cores would have 240 by EnvPool's own count."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(envpool_batch, "available_cores", lambda: 2)
    envs.make("Fake-v0", 3, backend="envpool", **stated)
    assert Pool.config_given["num_threads"] == given


class Limited(Pool):
    """Ends an episode as EnvPool does: once as many steps have been made as its configuration says."""

    def __init__(self, env_id, num_envs, **config):
        super().__init__(env_id, num_envs)
        self.limit = config.get("max_episode_steps", 3)
        self.spec = SimpleNamespace(**vars(Pool.spec))
        self.spec.config = SimpleNamespace(max_episode_steps=self.limit)

    def step(self, actions):
        """As the class says."""
        self.steps += 1
        return self.steps[:, None].copy(), np.ones(1), np.zeros(1, bool), self.steps >= self.limit, {}


@pytest.mark.parametrize(("given", "limit"), [({}, 3), (None, 3), (2, 2), (-1, None)])
def test_the_time_limit_is_the_one_that_is_given(monkeypatch, given, limit):
    """-1 is none, where EnvPool itself would end each episode at its first step; None leaves its own."""
    monkeypatch.setattr(envpool_batch, "why_not", lambda env_id: "")
    monkeypatch.setattr(envpool_batch, "_envpool", lambda: SimpleNamespace(make=Limited))
    kwargs = {} if given == {} else {"max_episode_steps": given}
    made = envs.make("Fake-v0", 1, backend="envpool", **kwargs)
    assert made.episode_limit == limit
    made.reset(seed=0)
    ends = [bool(made.step(np.zeros((1, 1)))[3][0]) for _ in range(4)]
    assert ends.index(True) + 1 == limit if limit else not any(ends)
    with pytest.raises(InvalidEnvironment, match="max_episode_steps is 0, expected a whole number from 1 on"):
        envs.make("Fake-v0", 1, backend="envpool", max_episode_steps=0)
