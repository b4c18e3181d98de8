"""What a learner says of a checkpoint that it cannot go on from is what is wrong with it."""

from types import SimpleNamespace

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.learner.learner import Learner
from tests.unit.algorithms.shipped import BOX

SAC = algorithms.get("sac")


def learner_of(half):
    """A learner of which there is this half alone: nothing else is restored before it."""
    learner = Learner.__new__(Learner)
    learner.half = half
    return learner


def half_of(width):
    """One whose networks are so wide."""
    return algorithms.make("critic", SAC, SAC.Options(hidden_sizes=(width,)), BOX, "cpu", 1)


def test_networks_of_another_size_are_named_so():
    """And so are those that a state does not hold."""
    state = half_of(8).state_dict()
    for other in (half_of(9).state_dict(), {name: each for name, each in state.items() if name != "own"}):
        with pytest.raises(CheckpointError, match="the checkpoint's networks differ from this run's: "):
            learner_of(half_of(8)).restore({"half": other})


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), RuntimeError("CUDA error: busy")],
)
def test_a_device_that_fails_is_no_fault_of_the_checkpoint(error):
    """The process crashes with it, and may succeed when it is started again."""

    def load_state_dict(state):
        raise error

    with pytest.raises(type(error)) as caught:
        learner_of(SimpleNamespace(load_state_dict=load_state_dict)).restore({"half": {}})
    assert caught.value is error
