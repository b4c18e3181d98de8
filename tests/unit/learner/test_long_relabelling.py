"""A learner is heard while it relabels many episodes, whose goals the environment may take one at a time."""

import sys
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.envs.goals import A_BREATH
from spreeze_zmq.learner import learner as learners
from spreeze_zmq.learner import replayed
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import replay_of
from tests.system.maze import Maze
from tests.unit.learner.test_refilled import whole


class OneByOne(Maze):
    """Its reward is of one goal; it counts how often it was asked."""

    asked = 0

    def compute_reward(self, achieved_goal, desired_goal, info):
        """As the maze's."""
        OneByOne.asked += 1
        return float(bool(super().compute_reward(achieved_goal, desired_goal, info)))


def relabelled(env):
    """The replay of a critic-learner and its component, which notes what it tells and, at each breath, how
    often goals had been asked about.
    """
    run = {"env": f"{__name__}:{env}", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": {"hindsight": "future", "hidden_sizes": [8]}})
    kind, options = algorithm_of(plan)
    half = algorithms.make("critic", kind, options, plan.environment, "cpu", 1)
    goals, component = sys.modules[__name__].OneByOne, SimpleNamespace(breaths=[], told=[], at_end=[])
    component.plan, component.environment = plan, plan.environment
    component.role, component.name = "critic_learner", "critic_learner-0"
    component.report = lambda kind, fields: component.told.append(fields["text"])
    component.breathe = lambda *, listens: component.breaths.append((goals.asked, listens))
    replay = replay_of(kind.kept_fields("critic", options), plan.environment, options, "cpu", 1)
    replay.relabel_by(replayed.relabelling(component, half))
    component.breaths.clear()
    return replay, component, goals


def test_a_learner_breathes_while_goals_are_asked_about_one_at_a_time():
    """However many episodes end in one rollout, and however long they are; it heeds no message meanwhile."""
    replay, component, goals = relabelled("OneByOne")
    rollout, before = whole(component.environment, 150), goals.asked
    replay.add(rollout)
    asked, listens = zip(*component.breaths, strict=True)
    assert goals.asked - before == 4 * rollout.num_transitions
    assert np.diff([before, *asked, goals.asked]).max() <= A_BREATH
    assert not any(listens)


@pytest.mark.parametrize(
    ("env", "dear_s", "lines"), [("OneByOne", 0.0, 1), ("OneByOne", 1e9, 0), ("Maze", 0.0, 0)]
)
def test_a_reward_of_one_goal_that_costs_much_is_told_once(monkeypatch, env, dear_s, lines):
    """With how long it takes."""
    monkeypatch.setattr(replayed, "DEAR_S", dear_s)
    _, component, _ = relabelled(env)
    assert len(component.told) == lines
    for line in component.told:
        assert line.startswith("1,000 transitions take about ")
        assert "s to be relabelled: compute_reward takes one goal at a time" in line


@pytest.mark.parametrize(("in_order", "most_s", "taken"), [(False, 0.0, 1), (False, 99.0, 8), (True, 0.0, 8)])
def test_messages_wait_for_no_further_rollout_where_one_takes_long(monkeypatch, in_order, most_s, taken):
    """In order, how many are taken follows from no clock."""
    monkeypatch.setattr(learners, "LONG_S", most_s)
    waiting, added = deque(range(20)), []
    intake = SimpleNamespace(fetch=lambda: None, take=waiting.popleft)
    one = SimpleNamespace()
    one.experience = SimpleNamespace(intake=intake, wants=True, in_order=in_order, add=added.append)
    learners.Learner.take_rollouts(one)
    assert len(added) == taken
