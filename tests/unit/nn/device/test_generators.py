"""A checkpoint of a learner on a GPU goes on with one on a CPU, and the other way round."""

import logging

import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.plan.roles import CRITIC_LEARNER
from spreeze_zmq.replay import Replay
from tests.unit.learner.test_counts import rounds
from tests.unit.replay.made import options, spec

#: A state as a CUDA generator has it: its seed and how far it has come.
OF_A_GPU = torch.tensor([7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], dtype=torch.uint8)
SAID = "random numbers start from the seed: the checkpoint is of another kind of device"


def of_a_half():
    """How a half goes on from a state, and what it draws from."""
    kind, env = algorithms.get("sac"), envs.probe("Pendulum-v1")
    half = algorithms.make("critic", kind, kind.Options(hidden_sizes=(8,)), env, "cpu", 1)
    state = half.state_dict()
    return lambda generator: half.load_state_dict({**state, "generator": generator}), torch.default_generator


def of_a_replay():
    """Likewise of a replay."""
    ring = Replay(spec(), options(10)).ring
    return ring.set_random_state, ring._generator


def of_rounds():
    """Likewise of the order of batches."""
    experience, _ = rounds(CRITIC_LEARNER)
    return lambda state: experience.restore({"rewards": {}, "order": state}), experience.generator


@pytest.mark.parametrize("made", [of_a_half, of_a_replay, of_rounds])
def test_the_state_of_another_kind_of_device_leaves_the_seeds_numbers(caplog, made):
    """The log says so; one of the same kind is taken over."""
    restore, generator = made()
    mine = generator.get_state()
    with caplog.at_level(logging.INFO, "spreeze"):
        restore(OF_A_GPU)
        assert torch.equal(generator.get_state(), mine)
        assert caplog.text.count(SAID) == 1
        torch.rand(3, generator=generator)
        restore(mine)
    assert torch.equal(generator.get_state(), mine)
    assert caplog.text.count(SAID) == 1
