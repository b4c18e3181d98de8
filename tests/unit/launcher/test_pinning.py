"""Which cores learners get for themselves, on machines of every size."""

import os

import pytest

from spreeze_zmq.base.machine import physical_cores
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.launcher.pinning import pin, pinned
from spreeze_zmq.plan import topology

LEARNERS = {"critic_learner-0": 1, "actor_learner-0": 1}
#: CPUs from here on are no run's of this machine, nor of others' tests.
NOWHERE = 100_000 * os.getpid()


def machine(cores, hyperthreads=1):
    """Linux numbers the second hyperthreads of all cores after the first ones."""
    return [[core + cores * thread for thread in range(hyperthreads)] for core in range(cores)]


@pytest.mark.parametrize("cores", [1, 2, 4, 7])
def test_small_machines_are_left_alone(cores):
    """Two cores would be more than a quarter of them, and idle while their learners starve."""
    found = pin(machine(cores), LEARNERS, "auto")
    assert found.cpus == {}
    assert found.of("critic_learner-0") is None
    assert found.reason.startswith(f"nothing is pinned: the learners' 2 of {cores} cores are more than 25 %")


def test_sixteen_cores_give_each_learner_one():
    """With both hyperthreads, and samplers stay off them; the broker and all other processes run anywhere."""
    found = pin(machine(16, 2), LEARNERS, "auto")
    assert found.of("critic_learner-0") == {0, 16}
    assert found.of("actor_learner-0") == {1, 17}
    rest = {*range(2, 16), *range(18, 32)}
    assert [found.of(name) for name in ("sampler-13", "evaluator-0", "visualizer-0")] == [rest] * 3
    assert found.of("broker-0") is None
    assert found.reason == (
        "critic_learner-0 on CPU 0,16, actor_learner-0 on CPU 1,17; everybody else on the other 14 cores"
    )


def test_a_core_for_each_thread_of_several_learners():
    """128 cores, two critic-learners of eight threads and an actor-learner of four: no core twice."""
    learners = {"critic_learner-0": 8, "critic_learner-1": 8, "actor_learner-0": 4}
    found = pin(machine(128), learners, "auto")
    own = [found.of(name) for name in learners]
    assert [len(cpus) for cpus in own] == [8, 8, 4]
    assert set().union(*own) == set(range(20))
    assert found.of("sampler-0") == set(range(20, 128))
    assert "critic_learner-1 on CPU 8-15" in found.reason


def test_always_pins_as_far_as_there_are_cores():
    """Three: one each and one for the others. Two: one each, the others anywhere. One: nothing."""
    three, two, one = (pin(machine(cores), LEARNERS, "always") for cores in (3, 2, 1))
    assert (three.of("critic_learner-0"), three.of("actor_learner-0"), three.of("sampler-0")) == (
        {0},
        {1},
        {2},
    )
    assert (two.of("critic_learner-0"), two.of("actor_learner-0"), two.of("sampler-0")) == ({0}, {1}, None)
    assert "2 cores leave none for them" in two.reason
    assert one.cpus == {}
    assert pin(machine(64), LEARNERS, "never").cpus == {}


def test_runs_beside_each_other_pin_their_learners_to_other_cores():
    """Two of a machine of 16; a third would have them reserve more than a quarter, until one of them ends."""
    cores = [[NOWHERE + cpu, NOWHERE + 10_000 + cpu] for cpu in range(16)]
    plan = topology.load("pendulum", cores=16)
    first, second, third = (pinned(plan, cores) for _ in range(3))
    learners = [run.of(name) for run in (first, second) for name in LEARNERS]
    assert learners == [set(core) for core in cores[:4]]
    assert third.cpus == {}
    assert "the learners' 2 of 16 cores beside the 4 of other runs' are more than 25 %" in third.reason
    first.close()
    again = pinned(plan, cores)
    assert again.cpus == first.cpus
    again.close()
    second.close()


def test_a_run_that_must_pin_takes_free_cores_first():
    """Of four, where another run has two: those that are left, and then what there is."""
    cores = [[NOWHERE + 30_000 + cpu] for cpu in range(4)]
    plan = topology.load("pendulum", ["balance.pin=true"], cores=4)
    runs = [pinned(plan, cores) for _ in range(3)]
    assert [[*run.of(name)] for run in runs for name in LEARNERS] == [*cores, *cores[:2]]
    for run in runs:
        run.close()


@pytest.mark.parametrize(
    ("setting", "known", "expected"),
    [
        ("components.sampler.count=auto", False, 12),
        ("components.sampler.count=[13, 16]", False, 13),
        ("components.sampler.count=14", False, 14),
        ("components.sampler.count=auto", True, 14),
        ("balance.mode=bounded", False, 14),
    ],
    ids=["auto", "a range above it", "stated", "as before", "versions of the rollouts of all"],
)
def test_samplers_begin_with_a_cpu_each_where_learners_have_whole_cores(setting, known, expected):
    """Eight cores of two threads: 16 CPUs but two for the learners would be 14 samplers on 12 CPUs."""
    plan = topology.load("pendulum", [setting], cores=16)
    found = pinned(plan, [[NOWHERE + 60_000 + cpu, NOWHERE + 70_000 + cpu] for cpu in range(8)])
    plan = found.settled(plan, known=known)
    found.close()
    assert plan.components["sampler"].count.initial == expected
    [here] = Balancer(plan)._look(expected, {})
    assert here.sampler_cores == 12


@pytest.mark.parametrize("setting", ["auto", "true"])
def test_a_quota_gives_no_cores(setting):
    """Eight of 64 CPUs: other containers, which have the same ones, would pin to the same cores."""
    plan = topology.load("pendulum", [f"balance.pin={setting}"], cores=8)
    cores = [[NOWHERE + 40_000 + cpu, NOWHERE + 50_000 + cpu] for cpu in range(32)]
    found = pinned(plan, cores, core_time=8.0)
    assert bool(found.cpus) == (setting == "true"), "who asks for it has it"
    found.close()


def test_hyperthreads_are_read_as_linux_lists_them(tmp_path):
    """Only those that the run may use; a CPU that is not described is a core of its own."""
    for cpu, siblings in ((0, "0,2\n"), (1, "1,3\n"), (2, "0,2\n"), (3, "1,3\n")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert physical_cores({0, 1, 2, 9}, tmp_path) == [[0, 2], [1], [9]]


@pytest.mark.parametrize(
    ("name", "speeds", "fastest"),
    [
        ("cpu_capacity", [414, 414, 414, 414, 1024, 1024, 1024, 1024], [[4], [5], [6], [7]]),  # big.LITTLE
        ("cpu_capacity", [250, 250, 780, 780, 1024], [[4], [2], [3]]),
        ("cpufreq/cpuinfo_max_freq", [3_900_000, 5_100_000, 5_300_000, 3_900_000], [[1], [2]]),  # E, P, P, E
        ("cpufreq/cpuinfo_max_freq", [4_000_000, 4_000_000], [[0], [1]]),
    ],
)
def test_learners_get_the_fastest_kind_of_cores(tmp_path, name, speeds, fastest):
    """Some machines number their slow ones first; those of one kind stay in order."""
    for cpu, speed in enumerate(speeds):
        path = tmp_path / f"cpu{cpu}" / name
        path.parent.mkdir(parents=True)
        path.write_text(f"{speed}\n")
    assert physical_cores(range(len(speeds)), tmp_path)[: len(fastest)] == fastest
