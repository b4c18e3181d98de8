"""Where goals are in an observation, and what an environment pays for goals that it did not ask for."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.forms import obs_parts
from spreeze_zmq.envs.goals import DIFFER, LACK, GoalRewards, goal_facts, goal_places
from tests.benchmarks.sick_environments import Goal
from tests.system.maze import SIZE, Maze

MAZE = "tests.system.maze:Maze"
PLANE = Box(-1.0, 1.0, (2,))


def parts(**spaces):
    """The parts of a Dict of these spaces."""
    return obs_parts(Dict(spaces))


def test_goals_are_found_in_the_flattened_observation():
    """At the places that Gymnasium's flatten gives them."""
    space = Dict(achieved_goal=PLANE, extra=Discrete(3), desired_goal=PLANE, observation=PLANE)
    places = goal_places(obs_parts(space))
    one = space.sample()
    flat = gymnasium.spaces.flatten(space, one)
    np.testing.assert_array_equal(flat[places.achieved], one["achieved_goal"])
    np.testing.assert_array_equal(flat[places.desired], one["desired_goal"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "this environment's observations are a Box"),
        (parts(state=PLANE, image=PLANE), "this environment's observations are a Dict of image, state"),
        (parts(observation=PLANE, achieved_goal=Discrete(2), desired_goal=PLANE), "a Box achieved_goal"),
        (
            parts(observation=PLANE, achieved_goal=Box(-1, 1, (3,)), desired_goal=PLANE),
            "achieved_goal has the shape [3] and desired_goal [2]",
        ),
    ],
)
def test_other_observations_are_refused(given, says):
    """With what they are."""
    with pytest.raises(InvalidEnvironment) as refused:
        goal_places(given)
    assert says in str(refused.value)


class Judged(Maze):
    """A maze whose ``compute_reward`` and ``compute_terminated`` are given."""

    def __init__(self, reward, terminated=None):
        super().__init__()
        self.compute_reward = reward
        if terminated is not None:
            self.compute_terminated = terminated


def one_at_a_time(achieved, desired, info):
    """Raises for many goals."""
    return 0.0 if bool(np.linalg.norm(achieved - desired) <= 0.1) else -1.0


def over_all(achieved, desired, info):
    """Gives for many goals one number, of all."""
    return -np.linalg.norm(achieved - desired)


def other_numbers(achieved, desired, info):
    """Gives for many goals as many numbers, which are not theirs."""
    return -np.linalg.norm(achieved - desired, axis=-1) / np.size(achieved)


@pytest.mark.parametrize("reward", [Maze().compute_reward, one_at_a_time, over_all, other_numbers])
def test_rewards_are_those_of_one_goal_at_a_time(reward):
    """Whether or not the environment takes many at once."""
    rewards = GoalRewards(Judged(reward, lambda *_: False), "Maze")
    rng = np.random.default_rng(1)
    pair = rng.uniform(-1, 1, (2, 20, SIZE)).astype(np.float32)
    pair[1, :5] = pair[0, :5]
    expected = [reward(*map(np.float64, both), {}) for both in zip(*pair, strict=True)]
    np.testing.assert_allclose(rewards.reward(*pair), np.array(expected, np.float32))
    assert rewards.in_batches == (reward.__name__ == "compute_reward")
    assert not rewards.terminated(*pair).any()


@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (lambda *_: [1.0, 2.0], "compute_reward returned"),
        (lambda *_: None, "compute_reward returned [None], expected one number for each goal"),
        (lambda *_: np.nan, "compute_reward gave nan at [0]"),
        (lambda achieved, desired: 0.0, "test_goals.py:"),
    ],
)
def test_a_bad_compute_reward_is_named(reward, says):
    """With what it gave, or the place where it raised."""
    with pytest.raises(InvalidEnvironment) as refused:
        GoalRewards(Judged(reward), "Maze")
    assert says in str(refused.value)
    assert str(refused.value).startswith("Maze: ")


def facts(env_id):
    """What is odd about an environment's goals."""
    with closing(envs.make(env_id, 1)) as batch:
        batch.reset(seed=0)
        return goal_facts(batch, env_id, obs_parts(batch.own_spaces[0]))


class Other(Maze):
    """Pays more than its ``compute_reward`` says."""

    def step(self, action):
        """As the class says."""
        obs, reward, *rest = super().step(action)
        return obs, reward - 0.5, *rest


class Stated(gymnasium.ObservationWrapper):
    """Calls ``state`` what the environment that it wraps calls ``observation``."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = Dict(self.observation(dict(env.observation_space.spaces)))

    def observation(self, obs):
        """As the class says."""
        return {"state" if name == "observation" else name: part for name, part in obs.items()}


def stated_maze():
    """A good environment."""
    return Stated(Maze())


def stated_other():
    """One that pays by another rule."""
    return Stated(Other())


def stated_goal():
    """One that does not say what it would pay."""
    return Stated(Goal())


def test_what_a_goal_environment_lacks_is_found_before_a_run():
    """No ``compute_reward``, or another one than it pays by; nothing of good ones and of others. What is
    beside the goals may have any name.
    """
    assert facts(MAZE) == facts("Pendulum-v1") == {}
    assert "has no compute_reward" in facts("tests.benchmarks.sick_environments:Goal")[LACK]
    assert facts(f"{__name__}:stated_maze") == {}
    assert "has no compute_reward" in facts(f"{__name__}:stated_goal")[LACK]
    for name in ("Other", "stated_other"):
        assert facts(f"{__name__}:{name}") == {DIFFER: "step() paid -1.5 where compute_reward gives -1"}
