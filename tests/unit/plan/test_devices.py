"""Which devices learners have on machines with any number of GPUs."""

from collections import Counter
from itertools import chain

import pytest

from spreeze_zmq.base import gpus
from spreeze_zmq.plan import devices, topology
from spreeze_zmq.plan.devices import device_of, device_problem, num_visible, resolve_device
from spreeze_zmq.plan.groups import plan_of_member
from spreeze_zmq.plan.roles import CRITIC_LEARNER, LEARNERS


@pytest.mark.parametrize(
    ("role", "written", "num_devices", "expected"),
    [
        ("critic_learner", "auto", 0, "cpu"),
        ("critic_learner", "auto", 1, "cuda:0"),
        ("actor_learner", "auto", 1, "cuda:0"),
        ("critic_learner", "auto", 2, "cuda:0"),
        ("actor_learner", "auto", 2, "cuda:1"),
        ("actor_learner", "cuda", 2, "cuda:0"),
        ("actor_learner", "cpu", 2, "cpu"),
    ],
)
def test_two_learners_take_two_gpus(role, written, num_devices, expected):
    """One each where there are two, the same where there is one."""
    assert resolve_device(role, written, num_devices) == expected


@pytest.fixture
def machine(monkeypatch):
    """Gives this machine a torch with CUDA and GPUs of these models."""

    def give(*models):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(gpus, "of_nvml", lambda library: list(models))
        monkeypatch.setattr(devices, "torch_has_cuda", lambda: True)
        monkeypatch.setattr(devices, "num_usable_gpus", lambda: len(models))
        for counted in ("num_cuda_devices", "num_auto_devices"):
            monkeypatch.setattr(devices, counted, getattr(devices, counted).__wrapped__)

    return give


@pytest.mark.parametrize(
    ("overrides", "roles"),
    [
        ((), ["critic_learner", "actor_learner"]),
        (["components.critic_learner.device=cpu"], ["actor_learner"]),
        (["placement.actor_learner=node"], ["critic_learner"]),  # that machine says what it has
    ],
)
def test_a_gpu_that_the_installed_torch_cannot_take_is_named(machine, monkeypatch, overrides, roles):
    """The CPU is taken for it where a device is "auto"."""
    machine("RTX 4090", "RTX 4090")
    assert not topology.load("pendulum", overrides).replaced
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: False)
    plan = topology.load("pendulum", overrides)
    keys = " and ".join(f"components.{role}.device" for role in roles)
    (line,) = plan.replaced
    assert line.startswith(f'{keys} = "auto": the CPU is taken: this machine has 2 GPUs, and the torch that')
    assert {plan.components[role].options["device"] for role in roles} == {"cpu"}


@pytest.mark.parametrize(
    ("num_gpus", "num_groups", "learners_on_each"),
    [(4, 4, [2] * 4), (2, 2, [2] * 2), (3, 2, [1, 1, 2]), (8, 2, [0] * 4 + [1] * 4), (1, 3, [6])],
)
def test_groups_spread_over_all_gpus(machine, num_gpus, num_groups, learners_on_each):
    """And no GPU has the critic-learners of all groups where there are others."""
    machine(*["RTX 4090"] * num_gpus)
    plan = topology.load("pendulum", [f"groups.count={num_groups}"], cores=16)
    groups = [plan, *(plan_of_member(plan, number, 4) for number in range(1, num_groups))]
    taken = [[group.components[role].options["device"] for role in LEARNERS] for group in groups]
    counted = Counter(chain(*taken))
    assert sorted(counted[f"cuda:{index}"] for index in range(num_gpus)) == learners_on_each
    assert num_gpus == 1 or len({critic for critic, _ in taken}) > 1
    assert taken == [[device_of(plan, role, number) for role in LEARNERS] for number in range(num_groups)]


def test_learners_that_are_alone_in_their_groups_have_a_gpu_each(machine):
    """Such as DQN's."""
    machine(*["RTX 4090"] * 3)
    plan = topology.load("cartpole_dqn", ["groups.count=3"], cores=16)
    groups = [plan, plan_of_member(plan, 1, 4), plan_of_member(plan, 2, 4)]
    taken = [group.components[CRITIC_LEARNER].options["device"] for group in groups]
    assert taken == ["cuda:0", "cuda:1", "cuda:2"]
    assert taken == [device_of(plan, CRITIC_LEARNER, number) for number in range(3)]


def test_a_stated_device_is_that_of_all_groups(machine):
    """Whatever others there are."""
    machine(*["RTX 4090"] * 4)
    stated = ["groups.count=2", "components.critic_learner.device=cuda:1"]
    plan = topology.load("pendulum", stated, cores=8)
    member = plan_of_member(plan, 1, 4)
    assert [each.components[CRITIC_LEARNER].options["device"] for each in (plan, member)] == ["cuda:1"] * 2
    assert device_of(plan, CRITIC_LEARNER, 1) == "cuda:1"


@pytest.mark.parametrize(
    ("models", "listed", "order", "taken"),
    [
        (["RTX 4090", "GT 1030"], None, None, {"cuda:0"}),
        (["GT 1030", "RTX 4090", "RTX 4090"], "1,2", "PCI_BUS_ID", {"cuda:0", "cuda:1"}),
        (["GT 1030", "RTX 4090", "RTX 4090"], "1,2", None, {"cuda:0"}),  # in which order is not known
        (["RTX 4090", "RTX 4090"], None, None, {"cuda:0", "cuda:1"}),
    ],
)
def test_gpus_of_other_models_are_left_alone(machine, monkeypatch, models, listed, order, taken):
    """The second one may be the one for the screen, slower than a CPU or without the memory."""
    machine(*models)
    for name, value in (("CUDA_VISIBLE_DEVICES", listed), ("CUDA_DEVICE_ORDER", order)):
        if value is not None:
            monkeypatch.setenv(name, value)
    plan = topology.load("pendulum", cores=8)
    assert {plan.components[role].options["device"] for role in LEARNERS} == taken


@pytest.mark.parametrize(
    ("written", "num_devices", "torch_has_cuda", "fragment"),
    [
        ("cuda:1", 0, True, "this machine has no CUDA devices"),
        ("cuda:1", 1, True, "this machine has 1 CUDA device"),
        ("cuda:2", 2, True, "this machine has 2 CUDA devices"),
        ("cuda", 0, False, "this machine has no CUDA devices"),
        ("cuda", 1, False, "needs a torch with CUDA"),
    ],
)
def test_an_absent_gpu_is_reported_before_torch_is_imported(written, num_devices, torch_has_cuda, fragment):
    """With the number that there is."""
    assert fragment in device_problem(written, num_devices, torch_has_cuda)


@pytest.mark.parametrize("written", ["cpu", "auto", "cuda", "cuda:0", "cuda:1"])
def test_a_present_device_has_no_problem(written):
    """Two GPUs and a torch that uses them."""
    assert device_problem(written, 2, True) == ""


@pytest.mark.parametrize(
    ("present", "listed", "expected"),
    [
        (2, None, 2),
        (0, "0", 0),
        (2, "", 0),
        (2, "1", 1),
        (4, "0, 2", 2),
        (2, "0,5,1", 1),
        (2, "-1", 0),
        (2, "GPU-a", 1),
        (2, "GPU-a,GPU-b", 2),
        (2, "MIG-a,MIG-b", 1),
        (2, "0,0", 0),
    ],
)
def test_hidden_gpus_are_not_counted(present, listed, expected):
    """CUDA_VISIBLE_DEVICES as CUDA reads it: the first invalid entry ends the list, a repeated one
    empties it, and a process has one instance of MIG.
    """
    assert num_visible(present, listed) == expected
