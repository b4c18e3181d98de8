"""What a learner says of a checkpoint that it cannot go on from is what is wrong with it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.learner.going_on import GOES_ON, GoingOn
from spreeze_zmq.learner.learner import Learner
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import digests_of
from spreeze_zmq.plan.roles import CRITIC_LEARNER
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


def observing(*sources):
    """A half of a policy that has observed each of these sources, three rows that are its number."""
    options = SAC.Options(hidden_sizes=(8,), normalize_observations=True)
    half = algorithms.make("policy", SAC, options, BOX, "cpu", 1)
    for source in sources:
        half.observe(np.full((3, *BOX.obs_shape), float(source), np.float32), source)
    return half


def observed_by(half):
    """Number, sum and sum of squares of what the next publication goes by."""
    return half._statistics.sums().tolist()


def test_a_source_of_data_that_a_checkpoint_does_not_know_stays_observed():
    """However often one of before it came is loaded; those that it knows count once, and others are kept."""
    before, both = observing("1", "2"), observing("1", "2", "3")
    after = observing("2", "3")
    for _ in range(2):
        after.load_state_dict(before.state_dict())
        assert observed_by(after) == pytest.approx(observed_by(both))
    again = observing("1", "3")
    again.load_state_dict(after.state_dict())
    assert observed_by(again) == observed_by(after)


def test_sources_are_in_the_statistics_of_a_release_that_did_not_name_them():
    """Of which those are that it had."""
    state = observing("1").state_dict()
    del state["sources"]
    after = observing("1")
    after.load_state_dict(state)
    assert observed_by(after) == observed_by(observing("1"))
    assert after.state_dict()["sources"] == ["1"]


def plan_on(device):
    """A run in order whose critic is on this device."""
    plan = topology.load("pendulum", ["balance.mode=lockstep"])
    critic = plan.components[CRITIC_LEARNER]
    critic = replace(critic, options={**critic.options, "device": device})
    return replace(plan, components={**plan.components, CRITIC_LEARNER: critic})


def going_on(device):
    """The place of a learner of such a run, which has one rollout in its replay."""
    order = {"order": dict, "go_on": lambda order: 0, "keeps_order": True, "replay": [0]}
    outlet = SimpleNamespace(get_state=dict, set_state=lambda state, before: None, of_policy=True)
    parts = {"experience": SimpleNamespace(**order), "outlet": outlet, "others": None}
    parts |= {"cadence": SimpleNamespace(published=3), "record": SimpleNamespace(lines=5)}
    return GoingOn(SimpleNamespace(component=SimpleNamespace(plan=plan_on(device)), **parts))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_place_of_a_release_that_wrote_no_devices_is_gone_on_from(device):
    """Its samplers are, so that a learner which is not would be out of step; on another device none is."""
    state = going_on(device).state()
    assert going_on(device).restore(state)
    assert not going_on("cuda:0" if device == "cpu" else "cpu").restore(state)
    earlier = {name: each for name, each in state[GOES_ON].items() if name != "devices"}
    for facts in digests_of(plan_on("cpu")):  # the second is of deadlines, too
        assert going_on(device).restore({GOES_ON: {**earlier, "facts": facts}})
