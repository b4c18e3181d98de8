"""Draws that depend on each other are told from those that do not, by what they were to be drawn with."""

import numpy as np
import pytest

from spreeze_zmq.peers import apart
from spreeze_zmq.peers.clauses import Broken
from spreeze_zmq.peers.policies import shares
from spreeze_zmq.wire import Message

STEPS, ENVS, ROLLOUTS = 24, 4, 9


def found(rollouts=ROLLOUTS):
    """Rollouts of which the numbers are all that counts."""
    return [Message("rollout", {"num_steps": STEPS, "num_envs": ENVS}, {})] * rollouts


def normal(rng, shape):
    """The intervals of normal numbers, and their chance."""
    return apart.intervals(apart.normal_shares(rng.standard_normal(shape))), 1 / apart.INTERVALS


def of_two(rng, shape):
    """One of two choices of which the first comes three times out of four."""
    return (rng.random(shape) < 0.25).astype(np.int64), np.broadcast_to([0.75, 0.25], (*shape, 2))


def masked(rng, shape):
    """One of three choices, of which another one is illegal in each row."""
    chances = shares(
        (rng.random((np.prod(shape), 3)) + 0.2) * ~np.eye(3, dtype=bool)[rng.integers(3, size=np.prod(shape))]
    )
    chosen = (rng.random(len(chances))[:, None] > chances.cumsum(1)).sum(1)
    return chosen.reshape(shape), chances.reshape(*shape, 3)


@pytest.mark.parametrize("draw", [normal, of_two, masked])
def test_independent_draws_are_apart(draw):
    """In none of many times, though each has 42 pairs: more than a million pairs would be needed."""
    for seed in range(100):
        chosen, chances = draw(np.random.default_rng(seed), (ROLLOUTS * STEPS * ENVS, 1))
        apart.expect_apart(found(), chosen, chances)


@pytest.mark.parametrize("draw", [normal, of_two])
@pytest.mark.parametrize("alike", [(1, 3), (0, 1, 2, 3)], ids=["two", "all"])
def test_environments_with_one_noise_are_named(draw, alike):
    """The first two of those that share it."""
    chosen, chances = draw(np.random.default_rng(1), (ROLLOUTS * STEPS, ENVS))
    chosen[:, alike] = chosen[:, alike[:1]]
    chances = chances if isinstance(chances, float) else chances.reshape(-1, 1, 2)
    with pytest.raises(Broken, match=f"environments {alike[0]} and {alike[1]} are drawn with the same noise"):
        apart.expect_apart(found(), chosen.reshape(-1, 1), chances)


@pytest.mark.parametrize("draw", [normal, of_two])
def test_rollouts_with_one_noise_are_named(draw):
    """As where each begins with the same seed; one of another size is left out."""
    chosen, chances = draw(np.random.default_rng(1), (ROLLOUTS, STEPS * ENVS))
    chosen[7] = chosen[2]
    chosen = np.append(chosen.ravel(), [0] * 5)[:, None]
    if not isinstance(chances, float):
        chances = np.broadcast_to(chances[0, 0], (len(chosen), 1, 2))
    more = Message("rollout", {"num_steps": 5, "num_envs": 1}, {})
    with pytest.raises(Broken, match="rollouts 2 and 7 are drawn with the same noise"):
        apart.expect_apart([*found(), more], chosen, chances)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_few_draws_show_nothing(columns):
    """One environment, or two that made the same three choices."""
    assert apart.shared(np.zeros((3, columns), np.int64), 0.5) is None
