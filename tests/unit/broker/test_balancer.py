"""When the broker may move counts, and what a change leaves unmeasured."""

import os
from dataclasses import replace

import pytest

from spreeze_zmq.base import machine
from spreeze_zmq.broker import cores
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.parts import DataPlan


@pytest.mark.parametrize(
    ("count", "low", "high"), [("auto", 1, 8), ("[2, 5]", 2, 5)], ids=["auto", "a range"]
)
def test_a_range_lets_it_move_the_count(count, low, high):
    """Within the range that the topology gives; "auto" is one from one to the number of cores, or 8."""
    plan = topology.load("pendulum", [f"components.sampler.count={count}"], cores=2)
    samplers = Balancer(plan).samplers
    assert (samplers.minimum, samplers.maximum) == (low, high)


def test_a_fixed_count_stays():
    """A number in the topology forbids it, and so does a place that is left free."""
    assert Balancer(topology.load("pendulum", ["components.sampler.count=2"])).samplers.movable is False
    assert Balancer(topology.load("pendulum", without=["sampler"])).samplers.movable is False


def test_a_lock_step_run_keeps_its_count():
    """It must repeat itself, whatever the machine does meanwhile."""
    plan = topology.load("pendulum")
    plan = replace(plan, balance=replace(plan.balance, mode="lockstep"))
    assert Balancer(plan).samplers.movable is False


def test_every_process_is_in_the_journal_with_its_three_rates():
    """Produced, received, trained on; where the time went, and cores."""
    balancer = Balancer(topology.load("pendulum"))
    clock = {"busy": 0.5, "blocked": 0.5, "starved": 0.0, "idle": 0.0}
    fields = {"role": "sampler", "cpu_s": 0.0, "counters": {}}
    for t_s in range(5):
        fields |= {"clock_s": {name: t_s * share for name, share in clock.items()}}
        fields |= {"pushed": {"critic_learner": 100 * t_s}}
        balancer.take("sampler-0", 1, fields, float(t_s))
        balancer.step(1, float(t_s), training=True)
    figures = balancer.figures(4.0)
    sampler = figures["processes"]["sampler-0"]
    assert sampler["produced_per_s"] == 100
    assert {"received_per_s", "trained_per_s", "busy", "blocked", "starved", "cpu"} < set(sampler)
    assert 0 <= figures["busy_cores"] <= figures["cores"] + 0.5


def eight_cores(monkeypatch, *overrides, **measured):
    """A run on a machine of eight cores, of which nobody is seen to use any."""
    monkeypatch.setattr("spreeze_zmq.broker.balancer.core_time", lambda: 8)
    monkeypatch.setattr("spreeze_zmq.broker.balancer.busy_cpu_s", lambda: 0.0)
    return Balancer(replace(topology.load("pendulum", overrides), measured=measured))


@pytest.mark.parametrize("quota", [0.5, 1.5])
def test_a_quota_of_a_part_of_a_core_is_full_when_that_part_is_busy(monkeypatch, quota):
    """A container of 1,500 millicores: nothing is idle where 1.5 are busy, and its processes compete."""
    busy_s = 0.0
    monkeypatch.setattr(machine, "quota_cores", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: busy_s)
    held, balancer = cores.Cores(), Balancer(topology.load("pendulum"))
    for t_s in (0.0, 5.0, 10.0):
        busy_s = quota * t_s
        balancer.windows.take_busy(busy_s, t_s)
        row = held.row(t_s)
    assert row == {"cpus": quota, "cpus_of_others": quota, "cpus_idle": 0.0}
    [here] = balancer._look(1, {})
    assert replace(here, busy_cores=balancer.windows.busy_cores(0.0, 10.0)).is_crowded


def warming_up(balancer, seconds, cpu, rate=900, works=1.0):
    """Reports of a run whose one sampler makes ``rate`` samples a second and uses so much of a core for them,
    ``works`` for a share of its time and is blocked for the rest, and which trains nothing yet; the changes
    that were decided, with their times.
    """
    changes = []
    for t_s in range(seconds):
        for role in ("sampler", "critic_learner", "actor_learner"):
            busy = float(role == "sampler")
            fields = {"role": role, "cpu_s": cpu * busy * t_s, "counters": {}}
            worked = works * busy
            clock = {"busy": worked * t_s, "blocked": (busy - worked) * t_s, "starved": (1 - busy) * t_s}
            fields |= {"clock_s": clock}
            amount = rate * t_s
            fields |= {"pushed": {"critic_learner": amount}} if busy else {}
            fields |= {"taken": {"sampler-0/1": {"received": amount, "refused": 0}}} if not busy else {}
            balancer.take(f"{role}-0", 1, fields, float(t_s))
        change = balancer.step(1, float(t_s), training=False)
        changes += [(t_s, change)] if change is not None else []
    return changes


def test_samplers_that_sleep_are_many_however_long_a_rollout_takes(monkeypatch):
    """A rollout of 16 x 16 takes five seconds; eight of them would come long after the training has begun."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=[1, 4]")
    [(t_s, change), *_] = warming_up(balancer, 8, cpu=0.04, rate=51)
    assert (t_s, change.before, change.count) == (6, 1, 4)


def test_samplers_that_sleep_are_no_more_than_the_cores_can_run(monkeypatch):
    """Eight cores run twenty of those that compute for 0.4 of their time."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=[1, 40]")
    [(_, change), *_] = warming_up(balancer, 8, cpu=0.4)
    assert (change.before, change.count) == (1, 20)


def test_samplers_that_sleep_are_many_before_anything_is_trained(monkeypatch):
    """Six seconds after all have spoken: the learners' first samples should come soon."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=[1, 4]")
    (t_s, change), *_ = warming_up(balancer, 8, cpu=0.1)
    assert (t_s, change.before, change.count) == (6, 1, 4)
    assert change.reason == (
        "samplers 1 -> 4: nothing is trained yet, and a sampler uses 0.10 of a core for 900 samples a second"
    )
    assert balancer.last_change == change.reason
    assert not balancer.status()["settled"]


@pytest.mark.parametrize(
    ("override", "cpu"),
    [
        ("components.sampler.count=1", 0.1),
        ("balance.mode=lockstep", 0.1),
        ("components.sampler.count=auto", 0.9),
    ],
)
def test_other_samplers_stay_as_they_are_before_anything_is_trained(monkeypatch, override, cpu):
    """Where the count is fixed, and where samplers have the cores already."""
    assert warming_up(eight_cores(monkeypatch, override), 8, cpu) == []


def test_a_sampler_that_is_blocked_is_not_one_that_sleeps(monkeypatch):
    """The learners make their first update, say, and it uses a core for its reports alone."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=[1, 8]")
    assert warming_up(balancer, 8, cpu=0.003, rate=1, works=0.001) == []


MEASURED = {"batch_size": {"chosen": 512, "curve": [[64, 1e5], [128, 2e5], [256, 4e5], [512, 5e5]]}}


def starving(balancer, seconds):
    """Reports of a run whose one sampler gives 1,000 transitions a second; the changes that were decided."""
    shares = {"sampler-0": (1.0, 0.0), "critic_learner-0": (0.02, 0.98), "actor_learner-0": (0.02, 0.98)}
    changes = []
    for t_s in range(seconds):
        for name, (busy, starved) in shares.items():
            clock = {"busy": busy * t_s, "blocked": 0.0, "starved": starved * t_s, "idle": 0.0}
            fields = {
                "role": name[:-2],
                "cpu_s": busy * t_s,
                "clock_s": clock,
            }
            fields |= {
                "counters": {"trained_transitions": 8000 * t_s},
                "pushed": {"critic_learner": 1000 * t_s},
            }
            fields |= {"taken": {"sampler-0/1": {"received": 1000 * t_s, "refused": 0}}}
            balancer.take(name, 1, fields, float(t_s))
        changes.append(balancer.step(1, float(t_s), training=True))
    return [change for change in changes if change is not None]


@pytest.mark.parametrize(("count", "moves"), [("1", ("batch_size", 64)), ("[1, 4]", ("", 4))])
def test_the_batch_moves_where_no_sampler_is_left_to_add(count, moves, monkeypatch):
    """A learner that starves gets more samplers first; the batch waits until these are as they should be."""
    overrides = [f"components.sampler.count={count}", "balance.replay_ratio=8", "components.sampler.envs=16"]
    balancer = eight_cores(monkeypatch, *overrides, **MEASURED)
    first, *_ = starving(balancer, 11)
    assert (first.option, first.count) == moves
    assert balancer.last_change == first.reason
    if first.option:
        assert first.reason.startswith("batch size 512 -> 64: critic_learner starved 98 % of the time")
        assert balancer.batch_size.present == 64
        balancer.set_batch_size(batch_size=256)
        assert balancer.batch_size.present == 256


def test_the_batch_stays_large_enough_for_the_shares_of_data(monkeypatch):
    """A hundredth of 64 is one transition; at three thousandths it takes 256."""
    overrides = ["components.sampler.count=1", "balance.replay_ratio=8", "components.sampler.envs=16"]
    for share, size in ((0.01, 64), (0.003, 256)):
        balancer = eight_cores(monkeypatch, *overrides, **MEASURED)
        balancer = Balancer(replace(balancer.plan, data={"one": DataPlan("minari:one-v0", share)}))
        first, *_ = starving(balancer, 11)
        assert (first.option, first.count) == ("batch_size", size)


def test_a_fixed_count_leaves_nothing_to_know(monkeypatch):
    """It has settled, but the next run would begin with the same one in any case."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=1", "balance.replay_ratio=8")
    assert starving(balancer, 11) == []
    assert balancer.status()["settled"]
    assert balancer.tuning() is None


@pytest.mark.parametrize(("stated", "is_kept"), [(8, True), (1, False), (64, False)])
def test_a_count_that_settled_at_a_requests_ratio_is_not_kept(stated, is_kept, monkeypatch):
    """The next run, which begins with the topology's ratio, would begin with too many or too few."""
    balancer = eight_cores(monkeypatch, "components.sampler.count=[1, 4]", f"balance.replay_ratio={stated}")
    balancer.cores = 1  # which the one sampler has
    balancer.set_replay_ratio(8.0, -10.0)
    assert starving(balancer, 16) == []
    assert balancer.status()["settled"]
    assert (balancer.tuning() is not None) == is_kept
