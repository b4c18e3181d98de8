"""Batches of environments: real ones beside real peers, for a moment."""

import pytest
from environments import against, measure_uneven

from spreeze_zmq import envs
from spreeze_zmq.commands.bench.figures import Rate


def test_the_best_setting_of_each_side_counts():
    """The median decides; the ratio is that of the same rounds."""
    rates = {
        "ours all": [Rate(10.0, 0), Rate(10.0, 0), Rate(10.0, 0)],
        "ours 16": [Rate(20.0, 0), Rate(30.0, 0), Rate(4.0, 0)],
        "EnvPool all": [Rate(10.0, 0), Rate(10.0, 0), Rate(2.0, 0)],
        "EnvPool 16": [Rate(5.0, 0), Rate(90.0, 0), Rate(2.0, 0)],
    }
    figure = against("a line", rates, "EnvPool", 1.1)
    assert (figure.limit, figure.reached, figure.ratio) == (10.0, 20.0, 2.0)
    assert figure.note == "asked 1.1; ours 16 over EnvPool all"


def test_workers_are_measured_beside_gymnasiums():
    """A real batch of each; even on a busy machine a batch per process is far behind."""
    figure = measure_uneven("Pendulum", "Pendulum-v1", 8, 2, None, 6.0, 0.3)
    assert figure.reached > 1.5 * figure.limit > 0


@pytest.mark.parametrize("name", ["Waiting", "Computing"])
def test_uneven_steps_keep_within_their_bounds(name):
    """The same seed takes the same times in either kind."""
    env = envs.make(f"uneven:{name}", 1, seed=3).envs[0]
    spent = []
    env.spend = spent.append
    env.reset(seed=0)
    for _ in range(300):
        env.step(env.action_space.sample())
    assert 0.001 == min(spent) < 0.003 < sorted(spent)[150] < 0.005 < max(spent) <= 0.02
