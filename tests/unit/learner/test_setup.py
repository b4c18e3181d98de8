"""What a run knows of its replays before any process starts."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.learner import measure_updates, setup
from spreeze_zmq.plan import devices, topology
from spreeze_zmq.plan.parts import DataPlan
from spreeze_zmq.replay import replay_of


@pytest.mark.parametrize("steps", [7, 300, 1500])
def test_the_memory_of_sequences_is_that_of_their_replay(steps):
    """Of any length: those of the sample may be few, and its only one longer than the sample."""
    told = {"memory_size": 8, "sequence_length": steps, "replay_capacity": 21_000, "batch_size": steps}
    plan = topology.load({"run": {"env": "CartPole-v1", "algorithm": "dqn"}, "algorithm": told})
    kind, options = setup.algorithm_of(plan)
    fields = kind.kept_fields("critic", options)
    made = replay_of(fields, plan.environment, options, "cpu", 0)
    assert setup.replay_bytes(plan)["critic_learner"] == made.ring.memory_bytes


GROUPS = ("groups.count=2", "placement.critic_learner=node")


@pytest.mark.parametrize(
    ("settings", "role", "fits"),
    [
        (("groups.count=1",), "", True),
        (("groups.count=2",), "", False),
        (GROUPS, "critic_learner", True),
        ((*GROUPS, "placement.member=node"), "critic_learner", True),
    ],
)
def test_replays_of_all_groups_count_where_all_of_them_are(monkeypatch, settings, role, fits):
    """On another machine there is that of the run's own group alone."""
    plan = topology.load("pendulum", settings, cores=8)
    size = sum(setup.replay_bytes(plan).values())
    monkeypatch.setattr(setup, "free_bytes", lambda device: 1.1 * size / setup.MEMORY_SHARE)
    if fits:
        assert sum(setup.check_memory(plan, role).values()) == size
        return
    with pytest.raises(InputError, match="of 2 groups take"):
        setup.check_memory(plan, role)


@pytest.mark.parametrize(("devices", "fits"), [(("cuda:0", "cuda:0"), False), (("cuda:0", "cuda:1"), True)])
def test_replays_that_share_a_gpu_are_added_up(monkeypatch, devices, fits):
    """Each fits alone: which of the two learners came second would run out of memory."""
    plan = topology.load("pendulum", cores=8)
    sizes = setup.replay_bytes(plan)
    whole = 1.1 * max(sizes.values()) / setup.MEMORY_SHARE
    asked = []

    def properties(device):
        asked.append(str(device))
        return SimpleNamespace(total_memory=whole)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    components = dict(plan.components)
    for role, device in zip(sizes, devices, strict=True):
        learner = components[role]
        components[role] = replace(learner, options={**learner.options, "device": device})
    plan = replace(plan, components=components)
    setup.check_memory(plan)  # where the run is started the GPUs are left alone
    assert asked == []
    for role in sizes:
        if fits:
            setup.check_memory(plan, role)
            continue
        with pytest.raises(InputError, match=r"actor_learner and critic_learner take .*, cuda:0 has"):
            setup.check_memory(plan, role)
    assert asked == list(devices)


@pytest.mark.parametrize(("num_gpus", "fits"), [(4, True), (2, False)])
def test_only_groups_that_share_a_gpu_are_added_up(monkeypatch, num_gpus, fits):
    """Four learners have one each of four GPUs, and on two of them each the other's beside it."""
    monkeypatch.setattr(devices, "num_auto_devices", lambda: num_gpus)
    plan = topology.load("pendulum", ["groups.count=2"], cores=8)
    sizes = setup.replay_bytes(plan)
    whole = 1.1 * max(sizes.values()) / setup.MEMORY_SHARE
    room = SimpleNamespace(total_memory=whole)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: room)
    if fits:
        assert setup.check_memory(plan, "critic_learner") == sizes
        assert measure_updates.largest_batch(plan, int(whole)) > measure_updates.SMALLEST
        return
    with pytest.raises(InputError, match=r"actor_learner and critic_learner take .*, cuda:0 has"):
        setup.check_memory(plan, "critic_learner")
    with pytest.raises(InputError, match="cuda:0 has"):
        measure_updates.largest_batch(plan, int(whole))


@pytest.mark.parametrize("room", [0.75, 0.25], ids=["a smaller replay", "none"])
def test_the_capacity_that_fits_is_that_beside_the_sources(monkeypatch, room):
    """Whose replays are as large as before; where they leave no room they are named."""
    plan = topology.load("pendulum", ["algorithm.replay_capacity=200_000"])
    shown = DataPlan("minari:shown", share=0.5, transitions=100_000)
    whole = sum(setup.replay_bytes(plan).values())
    plan = replace(plan, data={"shown": shown, "filling": replace(shown, share=None)})
    monkeypatch.setattr(setup, "free_bytes", lambda device: room * whole / setup.MEMORY_SHARE)
    says = "at most (50,0|49,9)" if room > 0.5 else r"alone take .* fewer episodes by data.shown.episodes$"
    with pytest.raises(InputError, match=says):
        setup.check_memory(plan)


def test_a_batch_is_sized_by_the_replay_that_it_is_drawn_from():
    """Sources do not make its transitions larger."""
    plan = topology.load("pendulum")
    shown = DataPlan("minari:shown", share=0.5, transitions=10 * plan.algorithm["replay_capacity"])
    with_data = replace(plan, data={"shown": shown})
    own, both = (sum(setup.replay_bytes(each).values()) for each in (plan, with_data))
    free, beside = (int(each / setup.MEMORY_SHARE) for each in (1.5 * both, both - own))
    alone = measure_updates.largest_batch(plan, free - beside)
    assert measure_updates.largest_batch(with_data, free) == pytest.approx(alone, rel=1e-3)
