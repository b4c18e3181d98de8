"""Batches of several replays hold the share of each, whatever the batch size."""

import numpy as np
import pytest
import torch

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.replay import Mixture, replay_of
from tests.unit.algorithms.shipped import BOX


class Fixed:
    """A replay whose rows all hold one number."""

    def __init__(self, number):
        self.number = number

    def sample(self, size):
        """``[size, 1]``."""
        return torch.full((size, 1), float(self.number))


@pytest.mark.parametrize(
    ("shares", "size", "sizes"),
    [
        ((0.5,), 256, [128]),
        ((0.5,), 1, [0]),
        ((0.25, 0.25), 10, [2, 3]),
        ((0.1, 0.2, 0.7), 10, [1, 2, 7]),
        ((1.0,), 7, [7]),
        ((1 / 3, 1 / 3, 1 / 3), 256, [85, 86, 85]),
    ],
)
def test_each_has_its_share_of_a_batch(shares, size, sizes):
    """To the nearest row, and together as many as the batch; its own gives the rest."""
    mixed = Mixture(Fixed(-1), [(share, Fixed(number)) for number, share in enumerate(shares)])
    assert mixed.sizes(size) == sizes
    drawn = mixed.sample(size)[:, 0]
    expected = [*np.repeat(np.arange(len(shares)), sizes), *[-1] * (size - sum(sizes))]
    assert drawn.tolist() == expected


@pytest.mark.parametrize("fields", [("obs",), ("obs", "action", "reward", "terminated", "truncated")])
def test_every_field_of_a_batch_is_joined(fields):
    """Of whole transitions and of observations alone."""
    from spreeze_zmq.algorithms import ReplayOptions

    spec: EnvironmentSpec = BOX
    options = ReplayOptions(replay_capacity=1000, learning_starts=1)
    replays = [replay_of(fields, spec, options, "cpu", seed) for seed in (1, 2)]
    for replay in replays:
        replay.add(random_rollout(spec))
    alone = {**vars(replays[0].sample(8))} if "action" in fields else {"obs": replays[0].sample(8)}
    drawn = Mixture(replays[0], [(0.5, replays[1])]).sample(16)
    both = vars(drawn) if "action" in fields else {"obs": drawn}
    assert both.keys() == alone.keys()
    for name, value in both.items():
        assert (value is None) == (alone[name] is None)
        assert value is None or value.shape == (16, *alone[name].shape[1:])
