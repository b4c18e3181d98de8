"""TD3+BC: its loss by hand, from pure cloning to plain TD3."""

import pytest
import torch

from spreeze_zmq.algorithms.declarations import TRANSITION_FIELDS
from spreeze_zmq.algorithms.td3 import TD3
from spreeze_zmq.algorithms.td3_bc import TD3BC
from tests.unit.algorithms.shipped import BOX, constant, make, transitions

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"hidden_sizes": (8, 6)}


def loss_of(kind=TD3BC, critics=-4.0, **options):
    """The loss of a policy that always chooses the middle, where the data have 0.5 and -1 of [-1, 1]."""
    algorithm, batch = make(kind, BOX, **SMALL, **options), transitions(BOX, 2)
    constant(algorithm.policy, 0.0, 0.0)
    constant(algorithm.critics, critics, critics)
    low, high = torch.from_numpy(BOX.action_low), torch.from_numpy(BOX.action_high)
    units = torch.tensor([[0.5, 0.5], [-1.0, -1.0]])
    batch.action = low + (units + 1.0) / 2.0 * (high - low)
    return algorithm.policy_loss(batch)


def test_the_loss_by_hand():
    """The mean square of 0.5 and 1, and 2.5 times a value of size 1 whose sign stays (equation 5)."""
    assert loss_of().loss.item() == pytest.approx((0.25 + 1.0) / 2 + 2.5)
    assert loss_of(critics=7.0).loss.item() == pytest.approx((0.25 + 1.0) / 2 - 2.5)


def test_without_the_value_it_clones_alone():
    """The critics are not asked."""
    assert loss_of(value_weight=0.0).loss.item() == pytest.approx(0.625)


def test_without_cloning_it_is_td3_but_for_the_scale_of_the_value():
    """Which Adam does not see."""
    plain, scaled = loss_of(TD3), loss_of(cloning_weight=0.0, value_weight=1.0)
    assert plain.loss.item() == pytest.approx(4.0)
    assert scaled.loss.item() == pytest.approx(1.0)


def test_its_policy_sees_the_actions_of_the_data():
    """So the actor-learner is sent whole transitions."""
    assert set(TRANSITION_FIELDS) <= set(TD3BC.fields_of("policy"))
