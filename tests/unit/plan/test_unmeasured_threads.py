"""Learners whose "auto" threads nobody measures take no more cores than pay."""

import os
from dataclasses import replace

import pytest

from spreeze_zmq.launcher.pinning import pinned
from spreeze_zmq.plan import devices, sizing, topology
from spreeze_zmq.plan.groups import plan_of_member
from spreeze_zmq.plan.sizing import Curves

ONE_SAMPLER = "components.sampler.count=1"


def threads_of(plan):
    """Those of each learner."""
    return [plan.components[role].threads for role in plan.learning.learners]


@pytest.fixture
def one_gpu(monkeypatch):
    """This machine has one, and a torch that uses it."""
    for counted in ("num_cuda_devices", "num_auto_devices"):
        monkeypatch.setattr(devices, counted, lambda: 1)
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: True)


def test_a_learner_on_a_gpu_has_one_thread_and_its_core(one_gpu):
    """Nothing is measured there, and 15 threads each would leave no core to pin a learner to."""
    plan = topology.load("halfcheetah_ppo", cores=32)
    assert (threads_of(plan), plan.to_measure) == ([1, 1], ())
    nowhere = 100_000 * os.getpid()  # no run of this machine has these
    found = pinned(plan, [[nowhere + cpu, nowhere + 16 + cpu] for cpu in range(16)])
    found.close()
    assert set(found.cpus) >= {"critic_learner-0", "actor_learner-0"}, found.reason


@pytest.mark.parametrize(
    "setting", ["balance.mode=lockstep", "components.critic_learner.threads=2"], ids=["in order", "written"]
)
def test_threads_that_are_not_measured_are_at_most_two(setting):
    """A fixed order measures none, nor does an actor-learner alone; 64 cores would be 31 each."""
    plan = topology.load("pendulum", [ONE_SAMPLER, setting], cores=64)
    assert (threads_of(plan), plan.to_measure) == ([2, 2], ())


@pytest.mark.parametrize(("cores", "most"), [(32, 3), (4, 1)])
def test_a_member_takes_what_the_run_has_measured(cores, most):
    """As far as its own cores allow; where nothing was measured, at most two."""
    plan = topology.load("pendulum", [ONE_SAMPLER, "groups.count=2"], cores=64)
    curves = Curves({}, "flat", {1: 100.0, 2: 180.0, 3: 270.0, 4: 280.0}, 1.0)
    settled = sizing.resolved(plan, curves, "by hand")
    assert threads_of(settled) == [3, 3]
    assert threads_of(plan_of_member(settled, 1, cores)) == [most] * 2
    unmeasured = replace(plan, to_measure=())
    assert threads_of(plan_of_member(unmeasured, 1, cores)) == [min(2, most)] * 2


def test_a_member_on_a_gpu_has_one_thread(one_gpu):
    """Whatever the run has measured elsewhere."""
    plan = topology.load("pendulum", [ONE_SAMPLER, "groups.count=2"], cores=64)
    assert threads_of(plan_of_member(plan, 1, 32)) == [1, 1]
