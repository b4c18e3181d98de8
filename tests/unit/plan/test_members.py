"""The plan of a member: a run of its own, but for the channels of the model that all groups share."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from spreeze_zmq.launcher.pinning import divided, own_share
from spreeze_zmq.plan import topology, tuning
from spreeze_zmq.plan.groups import plan_of_member
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.plan import Plan, first_index
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.roles import LEARNERS, channels_of, roles_of
from spreeze_zmq.run.folder import RunFolder, write_plan


@pytest.fixture
def plan(tmp_path):
    """Of three groups on six cores, placed."""
    made = topology.load("pendulum", ["groups.count=3", "algorithm.batch_size=64"], cores=6)
    placed, sockets = write_plan(made, RunFolder.create("run", str(tmp_path / "run")))
    yield placed
    sockets.remove()


def test_a_member_is_a_run_of_its_own(plan):
    """It ends when it is told, has other seeds and environments, and no page, evaluator, fuser or members."""
    own = plan_of_member(plan, 2, 8)
    assert tuple(own.components) == roles_of(LEARNERS)
    assert {role for role, one in own.components.items() if not one.launched} == {"evaluator", "visualizer"}
    assert (own.run.stop, own.groups.number) == (StopPlan(), 2)
    seeds = [plan.run.seed, *(plan_of_member(plan, number, 8).run.seed for number in (1, 2))]
    assert len(set(seeds)) == 3
    assert Plan.from_json(own.placed(Path("/run"), Path("/sockets")).to_json()).groups == own.groups


def test_each_life_of_a_member_has_seeds_of_its_own(plan):
    """They follow from the life, so that whoever has the same numbers has the same seeds."""
    lives = [plan_of_member(plan, 1, 8, life).run.seed for life in ((), (5,), (6,), (5,))]
    assert lives[1] == lives[3]
    assert len(set(lives)) == 3


def test_a_member_shares_two_channels_and_no_other(plan):
    """The others get endpoints in its own folder."""
    own = plan_of_member(plan, 1, 8)
    assert all(own.channels[name].endpoint is None for name in channels_of(LEARNERS))
    assert [own.channels[name].endpoint for name in ("models", "fused")] == [
        plan.channels[name].endpoint for name in ("models", "fused")
    ]


def test_what_the_topology_leaves_open_follows_from_the_members_own_cores(plan):
    """Six cores for three groups are two for each; a machine of eight has more samplers."""
    assert plan.components["sampler"].count == Count(1, 1, 8)
    assert plan_of_member(plan, 1, 8).components["sampler"].count == Count(6, 1, 8)


def test_no_two_environments_of_a_run_have_the_same_number():
    """Of groups on machines of other sizes."""
    plan = topology.load("pendulum", ["groups.count=3"], cores=192)
    groups = [plan, plan_of_member(plan, 1, 16), plan_of_member(plan, 2, 128)]
    samplers = [group.components["sampler"] for group in groups]
    envs, most = samplers[0].options["envs"], [sampler.count.maximum for sampler in samplers]
    firsts = [
        first_index(group, "sampler", i) for group, n in zip(groups, most, strict=True) for i in range(n)
    ]
    assert most == [64, 16, 128]
    assert sorted(firsts)[0] >= first_index(plan, "evaluator") + 1
    assert min(after - first for first, after in pairwise(sorted(firsts))) == envs


def test_rounds_of_a_member_are_those_of_the_run():
    """Though its machine has more cores: as many rollouts, and a policy after as many updates."""
    overrides = ["groups.count=2", "components.sampler.count=auto", "components.sampler.rollout_steps=auto"]
    plan = topology.load("hopper_ppo", overrides, cores=8)
    own = plan_of_member(plan, 1, 16)
    assert own.components["sampler"].count == plan.components["sampler"].count == Count(2, 2, 2)
    assert not tuning.movable(own)
    assert own.balance == plan.balance


def test_groups_have_cores_of_their_own():
    """As many each as there are; hyperthreads of one core stay together."""
    assert divided([[0, 4], [1, 5], [2, 6]], 2) == [{0, 4}, {1, 5, 2, 6}]
    assert divided([[0], [1]], 2) == [{0}, {1}]


def test_the_run_keeps_to_its_share_and_gives_it_back(plan):
    """A run of one group stays where it is."""
    before = os.sched_getaffinity(0)
    with own_share(topology.load("pendulum")) as shares:
        assert (shares, os.sched_getaffinity(0)) == ({}, before)
    if len(before) >= 3:
        with own_share(plan) as shares:
            own = os.sched_getaffinity(0)
            assert list(shares) == ["member-0", "member-1"]
            assert own.isdisjoint(shares["member-0"] | shares["member-1"])
    assert os.sched_getaffinity(0) == before
