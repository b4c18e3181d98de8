"""The average of a policy's weights: how far back it reaches, and that it goes on from a checkpoint."""

import numpy as np
import pytest

from spreeze_zmq.learner.average import PolicyAverage

SHARE = 0.05


def averaged(average, until, every, first=0):
    """The last average of weights that are the number of updates, taken after each ``every`` of them."""
    for updates in range(first, until + 1, every):
        last = average.take(np.array([updates], np.float32), updates)
    return float(last[0])


@pytest.mark.parametrize("until", [1_000, 100_000])
def test_it_reaches_back_by_the_same_share_of_every_run(until):
    """Of weights that grow evenly the power 1 / s of the updates is 1 / (1 + s) of the newest."""
    mean = averaged(PolicyAverage(SHARE), until, every=until // 1_000)
    assert mean / until == pytest.approx(1 / (1 + SHARE), rel=2e-3)


def test_a_single_step_hardly_shows():
    """Nor does it stay: after the share of as many updates again a part of 1 / e is left."""
    average = PolicyAverage(SHARE)
    for updates in range(0, 10_000, 10):
        average.take(np.zeros(2, np.float32), updates)
    assert average.take(np.ones(2, np.float32), 10_000)[0] == pytest.approx(10 / (SHARE * 10_000), rel=0.02)
    left = average.take(np.zeros(2, np.float32), 10_500)[0] / 0.02
    assert left == pytest.approx(np.exp(-1), rel=0.05)


def test_it_goes_on_from_its_state_as_it_would_have():
    """To the last bit; what was taken at the same count is not taken twice."""
    one, other = PolicyAverage(SHARE), PolicyAverage(SHARE)
    averaged(one, 500, every=7)
    other.set_state(one.get_state())
    at = 497
    assert np.array_equal(other.take(np.ones(1, np.float32), at), one.take(np.full(1, 3, np.float32), at))
    assert averaged(one, 900, every=7, first=504) == averaged(other, 900, every=7, first=504)


def test_an_earlier_checkpoint_and_no_average():
    """The first begins with the weights that come next; the second keeps nothing."""
    average, none = PolicyAverage(SHARE), PolicyAverage(0.0)
    averaged(average, 500, every=10)
    average.set_state({})
    assert average.take(np.full(1, 8, np.float32), 600)[0] == 8
    assert none.take(np.ones(1, np.float32), 1) is None
    none.set_state(average.get_state())
    assert none.get_state() == {}


def test_what_was_published_is_not_written_again():
    """A publisher owns the arrays of its messages, and a copy of the weights may be of a buffer."""
    average, weights = PolicyAverage(SHARE), np.ones(3, np.float32)
    first = average.take(weights, 0)
    weights[:] = 5
    average.take(weights, 10)
    assert np.array_equal(first, np.ones(3))
