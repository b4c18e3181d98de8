"""When the broker may move counts, and what a change leaves unmeasured."""

from dataclasses import replace

import pytest

from spreeze_zmq import topology
from spreeze_zmq.autoscale.balancer import Balancer


@pytest.mark.parametrize(
    ("count", "low", "high"), [("auto", 1, 8), ("[2, 5]", 2, 5)], ids=["auto", "a range"]
)
def test_a_range_lets_it_move_the_count(count, low, high):
    """Within the range that the topology gives; "auto" is one from one to the number of cores, or 8."""
    plan = topology.load("pendulum", [f"components.sampler.count={count}"], cores=2)
    rebalancer = Balancer(plan).rebalancer
    assert (rebalancer.minimum, rebalancer.maximum) == (low, high)


def test_a_fixed_count_stays():
    """A number in the topology forbids it, and so does a place that is left free."""
    assert Balancer(topology.load("pendulum", ["components.sampler.count=2"])).rebalancer.movable is False
    assert Balancer(topology.load("pendulum", without=["sampler"])).rebalancer.movable is False


def test_a_lock_step_run_keeps_its_count():
    """It must repeat itself, whatever the machine does meanwhile."""
    plan = topology.load("pendulum")
    plan = replace(plan, balance=replace(plan.balance, mode="lockstep"))
    assert Balancer(plan).rebalancer.movable is False


def test_every_process_is_in_the_journal_with_its_three_rates():
    """Produced, received, trained on; where the time went; cores and memory."""
    balancer = Balancer(topology.load("pendulum"))
    clock = {"busy": 0.5, "blocked": 0.5, "starved": 0.0, "idle": 0.0}
    fields = {"role": "sampler", "cpu_s": 0.0, "rss_bytes": 7, "counters": {}, "uptime_s": 1.25}
    for t_s in range(5):
        fields |= {"clock_s": {name: t_s * share for name, share in clock.items()}}
        fields |= {"pushed": {"critic_learner": 100 * t_s}}
        balancer.take("sampler-0", 1, fields, float(t_s))
        balancer.step(1, float(t_s), training=True)
    figures = balancer.figures(4.0)
    sampler = figures["processes"]["sampler-0"]
    assert sampler["produced_per_s"] == 100
    assert {"received_per_s", "trained_per_s", "busy", "blocked", "starved", "cpu"} < set(sampler)
    assert sampler["rss_bytes"] == 7
    assert 0 <= figures["busy_cores"] <= figures["cores"] + 0.5
    assert balancer.rebalancer.restraint.start_s == 1.25


def waiting(balancer, seconds, **rehearsals):
    """Reports of a run that warms up, with one sampler that sleeps for 900 samples a second and learners that
    have told these rehearsals; the changes that were decided, with their times.
    """
    changes = []
    for half in range(2 * seconds):
        t_s = half / 2
        for role, busy in (("sampler", 1.0), ("critic_learner", 0.0), ("actor_learner", 0.0)):
            clock = {"busy": busy * t_s, "blocked": 0.0, "starved": (1 - busy) * t_s, "idle": 0.0}
            fields = {"role": role, "cpu_s": 0.1 * busy * t_s, "rss_bytes": 7, "uptime_s": 1.0}
            fields |= {"clock_s": clock, "counters": {"stepped_transitions": 900 * busy * t_s}}
            fields |= {"switches": {"voluntary": 900 * t_s, "involuntary": 0}}
            fields |= {"rehearsal": rehearsals.get(role, {})}
            balancer.take(f"{role}-0", 1, fields, t_s)
        change = balancer.step(1, t_s, training=False)
        changes += [(t_s, change)] if change is not None else []
    return changes


REHEARSAL = {"transitions": 2000, "seconds": 0.01, "cpu_s": 0.01}
BOTH = {"critic_learner": REHEARSAL, "actor_learner": REHEARSAL}


def first_balancer(monkeypatch, *overrides):
    """Of a first run on a machine of eight cores."""
    monkeypatch.setattr("spreeze_zmq.autoscale.balancer.available_cores", lambda: 8)
    monkeypatch.setattr("spreeze_zmq.autoscale.balancer.busy_cpu_s", lambda: 0.0)
    return Balancer(topology.load("pendulum", ["components.sampler.count=[1, 4]", *overrides]))


def test_the_first_decision_needs_no_training(monkeypatch):
    """A second after all have spoken it is made from what they told, once, and stands in the journal."""
    balancer = first_balancer(monkeypatch)
    [(t_s, change)] = waiting(balancer, 6, **BOTH)
    assert (t_s, change.before, change.count) == (1.0, 1, 4)
    assert change.reason.startswith("samplers 1 -> 4 at the start: a sampler makes 900 samples a second")
    assert balancer.last_change == change.reason
    assert balancer.figures(6.0)["decision"]["at_the_start"]["wanted"] == 4
    assert not balancer.rebalancer.restraint.rested(t_s + 1.0)


def test_the_first_decision_waits_for_the_learners(monkeypatch):
    """One that has neither rehearsed nor trained may take any number."""
    assert waiting(first_balancer(monkeypatch), 6, critic_learner=REHEARSAL) == []


@pytest.mark.parametrize(
    "override", ["components.sampler.count=1", "balance.mode=lockstep", "balance.mode=bounded"]
)
def test_what_is_not_measured_is_not_moved_at_the_start(monkeypatch, override):
    """Whatever the reports say."""
    assert waiting(first_balancer(monkeypatch, override), 6, **BOTH) == []


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
                "rss_bytes": 7,
                "uptime_s": 1.0,
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


@pytest.mark.parametrize(("count", "moves"), [("1", [("batch_size", 64)]), ("[1, 4]", [("", 4)])])
def test_the_batch_moves_where_no_sampler_is_left_to_add(count, moves, monkeypatch):
    """A learner that starves gets more samplers first; the batch waits until these are as they should be."""
    monkeypatch.setattr("spreeze_zmq.autoscale.balancer.available_cores", lambda: 8)
    monkeypatch.setattr("spreeze_zmq.autoscale.balancer.busy_cpu_s", lambda: 0.0)
    overrides = [f"components.sampler.count={count}", "balance.replay_ratio=8", "components.sampler.envs=16"]
    known = {**MEASURED, "samplers": {"chosen": 1, "source": "as on this machine before"}}
    balancer = Balancer(replace(topology.load("pendulum", overrides), measured=known))
    changes = starving(balancer, 11)
    assert [(change.option, change.count) for change in changes] == moves
    if changes[0].option:
        assert balancer.figures(10.0)["decision"]["batch_size"] == 512
        assert balancer.last_change.startswith(
            "batch size 512 -> 64: critic_learner starved 98 % of the time"
        )
        balancer.go_on_with(batch_size=256)
        assert balancer.batch_size.present == 256
