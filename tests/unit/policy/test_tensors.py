"""Policies in a program that has tensors of torch of its own."""

import copy

import numpy as np
import pytest
import torch

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.policy.legal import mask_rows
from tests.unit.algorithms.shipped import BOX
from tests.unit.algorithms.test_shared_encoder import ONE_PART
from tests.unit.policy.test_policy_copies import published

#: Those that NumPy does not take; the meta device stands for any other than the CPU.
REFUSED = {
    "with a gradient": lambda obs: torch.tensor(obs, requires_grad=True),
    "bfloat16": lambda obs: torch.tensor(obs, dtype=torch.bfloat16),
    "on a device": lambda obs: torch.tensor(obs, device="meta"),
    "in a list": lambda obs: [torch.tensor(each, requires_grad=True) for each in obs],
}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_tensor_that_is_no_array_is_refused_with_what_to_give(kind):
    """Any other is taken as it is."""
    policy, obs = published(BOX)
    with pytest.raises(InputError, match=r"the observation is no array: .*detach\(\).float\(\).cpu\(\)"):
        policy(REFUSED[kind](obs))
    np.testing.assert_array_equal(policy(torch.tensor(obs)), policy(obs))


@pytest.mark.parametrize("kind", REFUSED)
def test_a_mask_that_is_no_array_is_refused(kind):
    """By the same error as any other that is not 0 and 1."""
    with pytest.raises(InputError, match=r"the action_mask is .*, expected an array of 0 and 1"):
        mask_rows(REFUSED[kind](np.ones((1, 3), np.float32)), 1)


def test_a_class_policy_is_made_whatever_device_new_tensors_are_on():
    """As after ``torch.set_default_device("cuda")``."""
    policy, obs = published(ONE_PART)
    torch.set_default_device("meta")
    try:
        again = copy.deepcopy(policy)
        np.testing.assert_array_equal(again(obs), policy(obs))
    finally:
        torch.set_default_device(None)
