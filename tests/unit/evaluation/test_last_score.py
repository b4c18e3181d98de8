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


@pytest.mark.parametrize(("left_s", "most"), [(15.0, 1), (200.0, RUNS)])
def test_no_score_is_of_the_episodes_alone_that_were_short(monkeypatch, left_s, most):
    """A step of all takes a second, so a round of five takes 2 or 20, as it is without or with a failure: of
    those within 15 seconds the score is 1. Where there is time, that of each run has its failures.
    """
    now_s, spec = [0.0], envs.probe("Pendulum-v1", {})
    algorithm = algorithms.get("sac")
    half = algorithms.make("policy", algorithm, algorithm.Options(hidden_sizes=(4,)), spec, "cpu", 1)
    fields = {"version": 1, "description": half.description(), "extras": {}}
    policy = Policy.from_message(fields, half.policy_arrays())
    batch, arena = envs.make(f"{__name__}:Chance", 5), SimpleNamespace(native=False, width=5)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def play_on(one, num, until_s):
        def on_step():
            now_s[0] += 1.0

        began_s = now_s[0]
        score = play(
            batch, policy, one.next_seed, num, until_s=until_s, clock=time.monotonic, on_step=on_step
        )
        return one.take(score, now_s[0] - began_s)

    scores = []
    for run in range(RUNS):
        best = Contestant(policy, 1000 * run)
        play_on(best, 10, np.inf)
        title = Title(Path(), lambda *_: None, play_on, None, 5, 30, arena, best)
        title.save = lambda: None
        title.score(1000 * run + 500, now_s[0] + left_s)
        scores += [title.holder.mean_return] if title.holder.final else []
    assert len(scores) <= most
    if most > 1:
        assert len(scores) > 0.8 * RUNS
        assert np.mean(scores) == pytest.approx(0.8, abs=0.06)
