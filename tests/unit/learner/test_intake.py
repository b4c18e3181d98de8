"""What the learners' loop is made of: the device, and the order of samples."""

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq.base.errors import InputError, WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.learner import device as learner_device
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.device import prepare_device
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.turns import Turns
from spreeze_zmq.plan import topology


def rollout(sampler, sequence, incarnation=1):
    """One without arrays: only its place in the order matters."""
    return Rollout(sampler, incarnation, sequence, (sequence + 1) * 8, 0, 4, 2)


def test_rollouts_have_one_order_whoever_comes_first():
    """The first of each sampler by index, then the second of each."""
    turns = Turns(2)
    for sampler, sequence in (("sampler-1", 0), ("sampler-1", 1), ("sampler-0", 0)):
        assert not turns.ready
        turns.put(rollout(sampler, sequence))
    order = []
    while turns.ready:
        taken = turns.next()
        order.append((taken.sampler, taken.sequence))
    assert order == [("sampler-0", 0), ("sampler-1", 0)]
    assert [left.sequence for left in turns.left()] == [1]


@pytest.mark.parametrize(
    ("stranger", "why"),
    [(rollout("sampler-2", 0), "no place"), (rollout("sampler-0", 0, incarnation=2), "restarted")],
)
def test_a_stranger_does_not_enter_the_order(stranger, why):
    """A sampler too many, or a second life: its samples are refused."""
    turns = Turns(2)
    turns.put(rollout("sampler-0", 0))
    with pytest.raises(WireError, match=why) as caught:
        turns.put(stranger)
    assert caught.value.reason == "misfit"


def test_without_samplers_no_rollout_is_due():
    """In a run on data alone, whose learners look for the last ones when they stop, too."""
    turns = Turns(0)
    assert not turns.ready
    assert turns.has_heard_all
    assert turns.left() == []


@pytest.fixture(scope="module")
def masked():
    """A check of masks, and a rollout whose first environment is truncated in its second step."""
    spec = replace(topology.load("cartpole").environment, action_mask=True)
    intake = Intake.__new__(Intake)
    intake.component = SimpleNamespace(environment=spec)
    made = random_rollout(spec)
    truncated = np.zeros(made.terminated.shape, bool)
    truncated[1, 0] = True
    finals = {"final_obs": made.obs[2, :1], "final_index": np.array([[1, 0]], np.int32)}
    return intake, replace(
        made, truncated=truncated, **finals, final_action_mask=np.ones((1, spec.num_choices), bool)
    )


def test_masks_by_which_no_action_is_legal_are_refused_where_an_episode_goes_on(masked):
    """Its targets would be those of an action that no policy takes. After a termination none need be
    legal.
    """
    intake, made = masked
    none = np.zeros_like(made.final_action_mask)
    last = made.action_mask.copy()
    last[-1, 3] = False
    assert not intake._wrong_action(made)
    assert "last row of action_mask" in intake._wrong_action(replace(made, action_mask=last))
    assert "final_action_mask" in intake._wrong_action(replace(made, final_action_mask=none))
    over = replace(made, terminated=made.truncated, truncated=made.terminated)
    assert not intake._wrong_action(replace(over, final_action_mask=none))


def learner_on(device, *overrides, role="critic_learner"):
    """What a learner is prepared by: a plan with as many threads as there are here, and its own device."""
    threads = f"components.{role}.threads={torch.get_num_threads()}"
    plan = topology.load("pendulum", [threads, *overrides])
    return SimpleNamespace(plan=plan, role=role, index=0, options={"device": device})


def test_a_learner_flushes_denormals():
    """Moments of weights without a gradient fade into them, and every update would be slower for it."""
    component = learner_on("cpu")
    tiny = torch.tensor([1e-30], dtype=torch.float32)
    assert prepare_device(component) == "cpu"
    assert (tiny * 1e-10).item() == 0.0


def test_a_gpu_that_torch_cannot_use_is_a_line_that_names_the_option():
    """It is absent, its driver is too old, or torch has no kernels for it: only torch finds that out."""
    component = learner_on("cuda:77", role="actor_learner")
    why = r'components\.actor_learner\.device: torch .* cannot use cuda:77: .* write "cpu" there'
    with pytest.raises(InputError, match=why):
        prepare_device(component)


@pytest.mark.parametrize(("in_order", "device"), [(True, "cuda:0"), (False, "cuda:0"), (True, "cpu")])
def test_a_gpu_repeats_its_sums_in_lock_step_alone(monkeypatch, in_order, device):
    """Before it is claimed: cuBLAS looks once. A CPU needs nothing, and elsewhere it would cost time."""
    seen = []

    def claim(*_):
        seen.extend((torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")))

    monkeypatch.setattr(learner_device, "claim", claim)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    component = learner_on(device, f"balance.mode={'lockstep' if in_order else 'free'}")
    filled = torch.utils.deterministic.fill_uninitialized_memory
    try:
        prepare_device(component)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = filled
    assert seen == ([True, ":4096:8"] if in_order and device != "cpu" else [False, None])
