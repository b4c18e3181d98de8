"""What the replay section says, on a small replay."""

import time

import numpy as np
import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.commands.bench import replay
from spreeze_zmq.commands.bench.figures import Job


@pytest.mark.parametrize(("env_id", "algorithm"), [("Pendulum-v1", "sac"), ("CartPole-v1", "dqn")])
def test_a_replay_is_measured_beside_bare_copies_and_updates_alone(monkeypatch, env_id, algorithm):
    """Storing, drawing, and updates while batches are drawn, rollouts come in and weights go out."""
    monkeypatch.setattr(replay, "CAPACITY", 2000)
    figures = {figure.name: figure for figure in replay.figures(Job(env_id, algorithm, 0.6))}
    assert list(figures) == [
        "storing, 256 at once",
        f"drawing, batch {algorithms.get(algorithm).Options().batch_size}",
        *("updates, drawing", "updates, storing", "updates, publishing"),
    ]
    assert [figure.unit for figure in figures.values()] == 2 * ["transitions/s"] + 3 * ["updates/s"]
    assert len({figure.limit for figure in list(figures.values())[2:]}) == 1
    assert all(figure.reached > 0 and 0 < figure.ratio < 10 for figure in figures.values())


def test_an_algorithm_without_a_replay_has_no_figures():
    """And the section says why."""
    section = replay.measure(Job("CartPole-v1", "ppo", 1.0))
    assert section.figures == []
    assert section.about == "ppo trains on each rollout when it comes and keeps none"


def test_what_is_done_between_updates_is_given_the_time_since_it_was_done_last():
    """So that rollouts come in at their rate, however long an update takes."""
    passed, times = [], []

    def between(seconds):
        passed.append(seconds)
        times.append(time.perf_counter())

    half = type("Half", (), {"update": staticmethod(lambda batch: None)})
    while len(passed) < 2:  # one that is held up takes all of its turn
        passed.clear()
        times.clear()
        began_s = time.perf_counter()
        rate = replay.updates(half, None, between, "cpu")(0.02)
    assert rate.per_s > 0
    given, least, most = np.cumsum(passed[1:]), np.array(times[:-1]) - times[0], np.array(times[1:]) - began_s
    assert len(given) > 0
    assert (least <= given + passed[0]).all()
    assert (given + passed[0] <= most).all()
