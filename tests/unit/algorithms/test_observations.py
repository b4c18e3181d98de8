"""Observations on their way into the networks, and their running statistics."""

import numpy as np
import pytest
import torch

from spreeze_zmq.algorithms.observations import CLIP, MOST_IMAGES, ObservationRows, RunningStatistics
from spreeze_zmq.policy.observations import ObservationScaling
from tests.unit.replay.made import spec


def test_statistics_are_those_of_all_rows():
    """Taken in pieces of uneven size, far from zero, and through a checkpoint."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(1000, 3)) * (0.1, 5.0, 0.0) + (1000.0, -2.0, 7.0)).astype(np.float32)
    statistics = RunningStatistics(spec((3,)))
    statistics.add(rows[:7])
    again = RunningStatistics(spec((3,)))
    again.load_state_dict(statistics.state_dict())
    for part in np.split(rows[7:], (1, 300)):
        again.add(part)
    np.testing.assert_allclose(again.mean, rows.mean(0, dtype=np.float64), rtol=1e-9)
    expected = rows.std(0, dtype=np.float64)
    deviation = again.arrays()["observation_std"]
    np.testing.assert_allclose(deviation, [expected[0], expected[1], 1e-2], rtol=1e-6)


@pytest.mark.parametrize("shape", [(6, 8), (3, 6, 8), (6, 8, 3)])
def test_each_pixel_has_statistics_of_its_own_which_a_stack_shares(shape):
    """In the order in which networks take channels; what never changes stays within a hundredth of 0..255."""
    images = np.random.default_rng(0).integers(100, 140, (MOST_IMAGES, *shape)).astype(np.uint8)
    images[:, :2] = 7
    env = spec(shape, "uint8", (), "discrete")
    statistics = RunningStatistics(env, 4)
    statistics.add(images)
    arrays = statistics.arrays()
    in_order = np.moveaxis(images, -1, 1) if shape == (6, 8, 3) else images
    rows = in_order.reshape(len(images), -1).astype(np.float64)
    np.testing.assert_allclose(arrays["observation_mean"], np.tile(rows.mean(0), 4), rtol=1e-6)
    deviation = np.maximum(rows.std(0), 2.55)
    np.testing.assert_allclose(arrays["observation_std"], np.tile(deviation, 4), rtol=1e-6)
    assert (deviation > 10).any()
    assert (deviation == 2.55).any()


def test_of_many_images_some_from_all_over_are_taken():
    """The last of them as well as the first."""
    images = np.repeat(np.arange(200, dtype=np.uint8), 10).reshape(2000, 1, 1) * np.ones((1, 4, 4), np.uint8)
    statistics = RunningStatistics(spec((4, 4), "uint8", (), "discrete"))
    statistics.add(images)
    assert MOST_IMAGES / 2 < statistics.count <= MOST_IMAGES
    np.testing.assert_allclose(statistics.mean, 99.5, atol=1.0)


@pytest.mark.parametrize(("dtype", "normalize"), [("uint8", True), ("uint8", False), ("float32", True)])
def test_learners_and_actors_see_the_same_rows(dtype, normalize):
    """By the arrays and the description of the policy message, cut off where they are far out."""
    shape, stack = (4, 5), 2 if dtype == "uint8" else 1
    env, rng = spec(shape, dtype, (), "discrete"), np.random.default_rng(0)
    seen = rng.integers(0, 10, (50, *shape)).astype(dtype)
    rows = ObservationRows(env, normalize, torch.device("cpu"), stack)
    statistics = RunningStatistics(env, stack)
    statistics.add(seen)
    rows.adopt(statistics.arrays())
    obs = rng.integers(0, 256, (7, stack * 4, 5)).astype(dtype)
    mine = rows(torch.from_numpy(obs)).numpy()
    theirs = ObservationScaling(rows.description(), rows.arrays())(obs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    assert np.abs(mine).max() == (CLIP if normalize else 1.0)
