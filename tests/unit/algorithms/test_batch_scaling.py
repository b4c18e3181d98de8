"""Learning rate and target rate of another batch size, by hand."""

import pytest

from spreeze_zmq.algorithms.options import ReplayOptions, following, scaled
from spreeze_zmq.algorithms.sac import SAC

STATED = {"learning_rate": 1e-3, "tau": 0.1, "reference_batch_size": 256, "gamma": 0.99}


@pytest.mark.parametrize(
    ("batch_size", "learning_rate", "tau"),
    [
        (256, 1e-3, 0.1),
        (1024, 2e-3, 1 - 0.9**4),
        (1024 * 4, 4e-3, 0.8146979811148159),
        (64, 5e-4, 0.025996253574703254),
    ],
)
def test_square_root_and_power(batch_size, learning_rate, tau):
    """Four times the batch: twice the step (2205.10287), and 0.9^4 of the targets kept (2307.13813)."""
    found = scaled(SAC.Options, STATED, batch_size)
    assert found == pytest.approx({"learning_rate": learning_rate, "tau": tau}, rel=1e-12)


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_targets_that_never_or_always_follow_go_on_so(tau):
    """Whatever the batch."""
    assert scaled(SAC.Options, {**STATED, "tau": tau}, 8192)["tau"] == tau


def test_the_same_samples_leave_the_same_of_the_targets():
    """Sixteen updates of 256, or one of 4096."""
    assert 1 - scaled(SAC.Options, STATED, 4096)["tau"] == pytest.approx((1 - 0.1) ** 16)


def test_nothing_else_is_scaled():
    """Only the options that say so, each by its own rule."""
    assert following(SAC.Options) == {"learning_rate": "sqrt", "tau": "average"}
    stated = {"learning_rate": 1.0, "gamma": 0.9, "reference_batch_size": 1}
    assert scaled(ReplayOptions, stated, 4) == {"learning_rate": 2.0}
