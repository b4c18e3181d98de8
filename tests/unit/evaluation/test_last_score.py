"""The final score of a run where the time that is left may not be enough."""

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from spreeze_zmq import algorithms, envs
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.evaluation.title import Title
from spreeze_zmq.policy import Policy

RUNS = 24


class Chance(PendulumEnv):
    """Four episodes in five succeed after two steps and are worth 1; the others fail after twenty."""

    def reset(self, **options):
        """Draw how it ends."""
        found = super().reset(**options)
        self.steps, self.last = 0, 2 if self.np_random.random() < 0.8 else 20
        return found

    def step(self, action):
        """As the pendulum's, but for reward and end."""
        self.steps += 1
        obs, _, _, *rest = super().step(action)
        ended = self.steps == self.last
        return obs, float(ended and self.last == 2), ended, *rest


class Even(Chance):
    """All episodes have twenty steps."""

    def reset(self, **options):
        """As drawn, but for the end."""
        found = super().reset(**options)
        self.last = 20
        return found


class Clock:
    """A time that passes with the steps of all environments.

    Attributes:
        step_s: seconds of one.
    """

    def __init__(self):
        self.now_s, self.step_s = 0.0, 1.0

    def __call__(self):
        """Its time."""
        return self.now_s

    def tick(self):
        """A step has been taken."""
        self.now_s += self.step_s


@pytest.fixture
def clock(monkeypatch):
    """The time that the title reads."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture(scope="module")
def policy():
    """An untrained policy for Pendulum."""
    spec, algorithm = envs.probe("Pendulum-v1", {}), algorithms.get("sac")
    half = algorithms.make("policy", algorithm, algorithm.Options(hidden_sizes=(4,)), spec, "cpu", 1)
    fields = {"version": 1, "description": half.description(), "extras": {}}
    return Policy.from_message(fields, half.policy_arrays())


def contest(env, clock, best):
    """The title that a policy holds at the end of a run, played in five environments of a class."""
    batch = envs.make(f"{__name__}:{env}", 5)

    def play_on(one, num, until_s):
        began_s = clock()
        timed = {"until_s": until_s, "clock": clock, "on_step": clock.tick}
        return one.take(play(batch, one.policy, one.next_seed, num, **timed), clock() - began_s)

    arena = SimpleNamespace(native=False, width=5)
    title = Title(Path(), lambda *_: None, play_on, None, 5, 30, arena, best)
    title.save = lambda: None
    return title


@pytest.mark.parametrize(("left_s", "most"), [(15.0, 1), (200.0, RUNS)])
def test_no_score_is_of_the_episodes_alone_that_were_short(clock, policy, left_s, most):
    """A step of all takes a second, so a round of five takes 2 or 20, as it is without or with a failure: of
    those within 15 seconds the score is 1. Where there is time, that of each run has its failures.
    """
    scores = []
    for run in range(RUNS):
        best = Contestant(policy, 1000 * run)
        title = contest("Chance", clock, best)
        title.play(best, 10, np.inf)
        title.score(1000 * run + 500, clock() + left_s)
        scores += [title.holder.mean_return] if title.holder.final else []
    assert len(scores) <= most
    if most > 1:
        assert len(scores) > 0.8 * RUNS
        assert np.mean(scores) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(("slower", "read"), [(1.04, False), (1.04, True), (4.0, True)])
def test_a_score_of_episodes_of_one_length_is_not_lost_to_a_pace(tmp_path, clock, policy, slower, read):
    """A round takes 20 seconds: in 123 all 30 episodes were expected, and the 25 that ended in them dropped.
    A file tells the pace of another process, perhaps on another machine.
    """
    best = Contestant(policy, 0)
    contest("Even", clock, best).play(best, 10, np.inf)
    if read:
        best.save(tmp_path / "best", envs.probe("Pendulum-v1", {}), None)
        best = Contestant.read(tmp_path / "best")
    title = contest("Even", clock, best)
    clock.step_s = slower
    title.score(500, clock() + 123.0)
    assert (title.holder.final, title.holder.num_episodes) == (True, 5 * int(123 / (20 * slower)))
