"""What the cores of a run of several groups are used for: those of the launcher are its own group's alone."""

import os

import pytest

from spreeze_zmq.broker import cores
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology


def report(role, cpu_s, updates):
    """The fields of a report."""
    clock = {"busy": 1.0, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
    base = {"role": role, "name": f"{role}-0", "pid": 1, "time_s": 0.0, "uptime_s": 1.0, "cpu_s": cpu_s}
    return {
        **base,
        "rss_bytes": 1000,
        "clock_s": clock,
        "counters": {"critic_updates": updates},
        "gauges": {},
    }


def test_a_member_hides_no_other_program_on_the_launchers_cores(monkeypatch):
    """It reports its group's CPU time, which is spent on cores of its own; the run's sum holds it."""
    busy_s = 0.0
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: busy_s)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    run = RunRecord(topology.load("pendulum", ["groups.count=2"], cores=8))
    for updates, t_s in enumerate((0.0, 10.0, 20.0)):
        busy_s = 3.0 * t_s
        for name, share in (("critic_learner", 1.0), ("member", 4.0)):
            run.take_report(f"{name}-0", 1, report(name, share * t_s, updates), t_s)
        row = run.cores.row(t_s)
    assert (row["cpus_of_others"], row["cpus_idle"]) == pytest.approx((2.0, 1.0))
    shares = run.core_shares(20.0)
    assert (shares.updates, shares.messages, shares.others) == pytest.approx((0.25, 0.0, 0.5))
    assert run.core_s == pytest.approx(100.0)
