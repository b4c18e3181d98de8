"""Episodes that are kept as an environment gives them itself."""

from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq import envs
from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from spreeze_zmq.envs.engines import envpool_batch
from spreeze_zmq.envs.failures import TOLERATED
from spreeze_zmq.envs.recorded import recorded
from spreeze_zmq.evaluation.evaluation import play
from tests.unit.envs.ported import Port
from tests.unit.policy.test_playing import policy_of

OWN = "tests.unit.envs.test_recorded"


class Sensor(gymnasium.Env):
    """Episodes of three steps; in every ``each``-th the sensor is gone, and what is closed stays closed. With
    ``odd`` it gives no number in the last step instead.
    """

    observation_space, action_space = Box(-1.0, 1.0, (3,), np.float32), Box(-1.0, 1.0, (1,), np.float32)
    episodes = 0

    def __init__(self, each, odd=False):
        self.each, self.odd, self.closed = each, odd, False

    def reset(self, *, seed=None, options=None):
        assert not self.closed
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        """Go on, if there is a sensor."""
        assert not self.closed
        self.t += 1
        Sensor.episodes += self.t == 1
        fails = Sensor.episodes % self.each == 0 and self.t == 2 + self.odd
        if fails and not self.odd:
            raise OSError("no sensor")
        return np.zeros(3, np.float32), np.nan if fails else 1.0, self.t == 3, False, {}

    def close(self):
        self.closed = True


def kept_of(each, num_episodes, odd=False):
    """The episodes that are kept of these."""
    episodes = []
    spec = replace(envs.probe(f"{OWN}:Sensor", {"each": 10**9}), kwargs={"each": each, "odd": odd})
    batch, _ = recorded(spec, episodes.append)
    with closing(batch):
        play(batch, policy_of(), 0, num_episodes)
    return episodes


@pytest.mark.parametrize("odd", [False, True])
def test_an_episode_that_fails_is_played_again_in_another_environment(odd):
    """As many are kept as were asked for, each whole, also where its last step is refused; what was recorded
    before is not lost.
    """
    kept = kept_of(each=8, num_episodes=12, odd=odd)
    assert all(one.rewards == [1.0] * 3 for one in kept)
    assert [(len(one.rewards), len(one.observations), one.terminated) for one in kept] == [(3, 4, True)] * 12


def test_episodes_end_at_the_limit_of_the_evaluation():
    """Which no argument of the environment says."""
    episodes = []
    spec = replace(envs.probe(f"{OWN}:Sensor", {"each": 10**9}), max_episode_steps=2)
    batch, _ = recorded(spec, episodes.append)
    with closing(batch):
        play(batch, policy_of(), 0, 3)
    assert [(len(one.rewards), one.terminated) for one in episodes] == [(2, False)] * 3


@pytest.mark.parametrize(("most", "expected"), [(None, 6), (2, 2)])
def test_an_environment_goes_on_beyond_a_limit_within_it_as_in_a_run(most, expected):
    """What is around that limit decides; a lower one of the evaluation is kept."""
    episodes, spec = [], envs.probe("tests.unit.envs.test_batched:trials")
    batch, _ = recorded(replace(spec, max_episode_steps=most or spec.max_episode_steps), episodes.append)
    with closing(batch):
        play(batch, policy_of(), 0, 2)
    assert [len(one.rewards) for one in episodes] == [expected] * 2


def test_more_failures_than_a_run_tolerates_are_an_error():
    """With their number, and the first of them."""
    with pytest.raises(EnvironmentFailure, match=f"no sensor.* at most {TOLERATED} are tolerated"):
        kept_of(each=1, num_episodes=1)


def test_a_native_task_of_the_users_own_is_refused_as_what_it_is():
    """It has no steps of its own spaces."""
    with pytest.raises(InvalidEnvironment, match=r"doors:Lines is stepped as a whole batch \(the user's own"):
        recorded(envs.probe("tests.unit.envs.doors:Lines"), [].append)


def test_an_environment_with_other_spaces_than_its_run_had_is_closed():
    """It may hold a port, or a window."""
    spec = replace(envs.probe("tests.unit.envs.ported:Port"), action_shape=(5,))
    with pytest.raises(InvalidEnvironment, match="its action_shape"):
        recorded(spec, [].append)
    assert not Port.taken


def test_what_a_library_steps_elsewhere_is_recorded_of_gymnasiums_own(monkeypatch):
    """Where EnvPool is installed runs take it, which has no single steps; what it alone has is refused."""
    episodes, spec = [], replace(envs.probe("MountainCarContinuous-v0"), max_episode_steps=20)
    monkeypatch.setattr(envpool_batch, "why_not", lambda env_id: "")
    batch, env = recorded(spec, episodes.append)
    with closing(batch):
        play(batch, policy_of(2), 0, 2)
    assert env.spec.id == "MountainCarContinuous-v0"
    assert [len(one.rewards) for one in episodes] == [20, 20]
    with pytest.raises(InvalidEnvironment, match=r"Pong-v5 is stepped as a whole batch \(Gymnasium does not"):
        recorded(replace(spec, id="Pong-v5"), [].append)
