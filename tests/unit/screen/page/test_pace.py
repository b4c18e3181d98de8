"""How often the agent is shown."""

import os

import psutil

from spreeze_zmq.base import usage
from spreeze_zmq.base.machine import core_time
from spreeze_zmq.screen.page import pace as pace_module
from spreeze_zmq.screen.page.pace import LEAST_PER_S, Pace


class Machine:
    """A machine whose idle cores the test sets, and a process whose pictures each cost CPU time."""

    def __init__(self, idle, cost_s):
        self.idle, self.cost_s = idle, cost_s
        self.now_s = self.cpu_s = 0.0

    def rate_after(self, pace, seconds, most=30.0):
        """Let a process show pictures as its pace says."""
        for _ in range(seconds):
            rate = pace.per_s(most)
            self.now_s += 1.0
            self.cpu_s += rate * self.cost_s
        return pace.per_s(most)


def pace_on(machine, cores=1.0):
    """A pace that may use so many cores."""
    share = cores / core_time()
    return Pace(share, lambda: machine.idle, lambda: machine.cpu_s, lambda: machine.now_s)


def test_where_a_core_is_idle_every_picture_is_shown():
    """Whatever it costs: nobody waits for that core."""
    machine = Machine(idle=1.0, cost_s=0.02)
    assert machine.rate_after(pace_on(machine, 0.01), 5) == 30.0


def test_a_full_machine_gets_what_its_share_pays_for():
    """4 ms a picture and 4 % of a core are ten pictures a second."""
    machine = Machine(idle=0.0, cost_s=0.004)
    rate = machine.rate_after(pace_on(machine, 0.04), 30)
    assert 9.0 < rate < 11.0


def test_a_picture_still_moves_where_it_costs_too_much():
    """Never fewer than the least."""
    machine = Machine(idle=0.0, cost_s=0.5)
    assert machine.rate_after(pace_on(machine, 0.01), 30) == LEAST_PER_S


def test_it_recovers_when_the_machine_is_free_again():
    """At the next look."""
    machine = Machine(idle=0.0, cost_s=0.1)
    pace = pace_on(machine, 0.01)
    machine.rate_after(pace, 20)
    machine.idle = 1.5
    assert machine.rate_after(pace, 2) == 30.0


def test_cores_that_this_process_may_not_use_are_not_idle_for_it(tmp_path, monkeypatch):
    """It has one of two, which is busy all the time, as in a job that was given a part of its machine."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    monkeypatch.setattr(usage, "quota_used_s", lambda below: None)
    monkeypatch.setattr(pace_module, "quota_cores", lambda: None)

    def look(now_s):
        ticks = 10**9 * now_s  # far more than pass meanwhile
        rows = (("cpu ", ticks, ticks), ("cpu2", 0, ticks), ("cpu5", ticks, 0))
        text = "".join(f"{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for cpu, busy, idle in rows)
        (tmp_path / "stat").write_text(text)

    look(0)
    now_s = [0]
    pace = Pace(0.01, cpu=lambda: now_s[0], clock=lambda: now_s[0])
    for now_s[0] in range(1, 20):
        look(now_s[0])
        rate = pace.per_s(30.0)
    assert rate == LEAST_PER_S
