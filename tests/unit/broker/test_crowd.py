"""A status of very many processes: it fits, has the rows that matter, and its sums hold everybody."""

import os
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.crowd import MOST_SHOWN, smaller
from spreeze_zmq.broker.machines import in_words, names_in
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher.deadlines import Deadlines
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import MOST_PROCESSES
from spreeze_zmq.wire import Message, encode

BALANCE = {"movable": True, "settled": False, "last_change": ""}
OWN = ("critic_learner-0", "actor_learner-0", "broker-0", "evaluator-0")


def report(name, pushed=0, waiting_for="", seconds=1.0):
    """The fields of a report of a process that has been busy for so long."""
    fields = {"role": name.rpartition("-")[0], "name": name, "pid": 1, "cpu_s": 0.1 * seconds}
    clock = {"busy": seconds, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
    fields |= {"clock_s": clock, "rss_bytes": 1000, "counters": {}, "gauges": {}, "waiting_for": waiting_for}
    return fields | ({"pushed": {"critic_learner": pushed}} if pushed else {})


def run_of(num_samplers, *overrides, without=("sampler",)):
    """A record of a run with so many samplers, each of which has pushed 16 transitions in a second."""
    run = RunRecord(topology.load("pendulum", overrides, without=without))
    for name in (*(f"sampler-{index}" for index in range(num_samplers)), *OWN):
        run.take_hello(name, 7, report(name, 16 * name.startswith("sampler")), 1.0)
    return run


def test_a_thousand_samplers_are_all_in_the_sums_of_a_status_of_32_kib():
    """The worst have rows: silent ones, then those that wait; the run's own always have."""
    run = run_of(1000)
    for index in range(999):
        late = {"waiting_for": "critic_learner to take a rollout"} if index >= 990 else {}
        run.take_report(f"sampler-{index}", 7, report(f"sampler-{index}", 32, seconds=2.0, **late), 5.0)
    status = run.status("training", BALANCE, 5.0)
    rows, others = status["processes"], status["others"]["sampler"]
    assert len(encode(Message("status", status))[0]) <= 32 * 1024
    assert len(rows) == MOST_SHOWN
    assert {*OWN, "sampler-999", *(f"sampler-{index}" for index in range(990, 999))} <= rows.keys()
    assert status["workers"]["sampler"]["count"] == 1000
    assert others["count"] == 1000 - (MOST_SHOWN - len(OWN))
    assert others["produced_per_s"] == pytest.approx(16 * others["count"])
    assert (others["silent"], others["waiting"]) == (0, 0)
    assert others["busy"] == pytest.approx(1.0)
    assert status["samples"]["produced"] == 999 * 32 + 16


def test_few_processes_all_have_rows_and_nothing_is_left_out():
    """What people see of a run of eight samplers has no word of others."""
    status = run_of(8, "components.sampler.count=8", without=()).status("training", BALANCE, 2.0)
    assert "others" not in status
    assert list(status["processes"]) == [*(f"sampler-{index}" for index in range(8)), *OWN]


def test_the_launchers_own_samplers_always_have_rows():
    """It restarts a process of which it hears nothing."""
    run = run_of(160, "components.sampler.count=[1, 150]", without=())
    rows = run.status("training", BALANCE, 2.0)["processes"]
    assert {*OWN, *(f"sampler-{index}" for index in range(150))} == rows.keys()


def test_a_run_holds_two_thousand_processes_and_forgets_those_that_are_gone():
    """One more is refused while all live, but for the launcher's own. Names that somebody has made up and
    says nothing more in keep nobody out.
    """
    run = run_of(MOST_PROCESSES - len(OWN))
    with pytest.raises(WireError, match="2,000 processes") as caught:
        run.take_hello("sampler-9999", 7, report("sampler-9999"), 2.0)
    assert caught.value.reason == "too_many"
    run.take_hello("visualizer-0", 7, report("visualizer-0"), 2.0)
    run.lose("sampler-3", "stopped")
    run.lose("sampler-4", "stopped")
    run.take_hello("sampler-9999", 7, report("sampler-9999"), 2.0)
    assert {"sampler-3", "visualizer-0"} & run.processes.keys() == {"visualizer-0"}
    made_up = run_of(MOST_PROCESSES - len(OWN))
    later_s = made_up.plan.components["broker"].options["heartbeat_timeout_s"] + 3.0
    made_up.take_report("sampler-5", 7, report("sampler-5"), later_s)
    made_up.take_hello("sampler-9999", 7, report("sampler-9999"), later_s)
    assert {"sampler-5", "sampler-9999"} <= made_up.processes.keys()


def test_a_status_that_does_not_fit_is_cut():
    """First the long texts of its lists, then its rows; all else stays."""
    status = run_of(195, "components.sampler.count=195", without=()).status("training", BALANCE, 2.0)
    status["failures"] = [{"summary": "x" * 8000} for _ in range(8)]
    first, second, last = smaller(status)
    assert first == status
    with pytest.raises(WireError, match="at most"):
        encode(Message("status", first))
    encode(Message("status", second))
    assert second["processes"] == status["processes"]
    assert last["processes"] == {}
    assert last["samples"] == status["samples"]


def test_samplers_of_joined_machines_that_have_no_rows_are_not_taken_for_late():
    """64 of them beside two of the launcher's own: all are ready after 3 s, 50 have rows."""
    plan = topology.load("pendulum", ["components.sampler.count=2"])
    run, now = RunRecord(plan), SimpleNamespace(s=0.0)
    deadlines = Deadlines(plan, lambda name: 0.0, lambda: now.s)
    names = [*OWN, *(f"sampler-{index}" for index in range(66))]
    for name in names:
        deadlines.begin(name)
    for tick in range(1, 100):
        now.s = tick / 2
        for name in names if tick >= 6 else ():
            take = run.take_hello if tick == 6 else run.take_report
            take(name, 7, {**report(name, seconds=now.s), "pid": os.getpid()}, now.s)
        status = run.status("training", BALANCE, now.s)
        deadlines.hear_status(status)
        rows = {name: deadlines.row_of(name, os.getpid(), status) for name in names}
        assert [name for name in names if deadlines.missed(name, rows[name])] == []
    assert len(status["processes"]) == MOST_SHOWN
    run.lose("sampler-60", "was killed by SIGKILL")  # and what takes its place says nothing
    deadlines.begin("sampler-60")
    for _ in range(100):
        now.s += 0.5
        status = run.status("training", BALANCE, now.s)
        deadlines.hear_status(status)
    missed = deadlines.missed("sampler-60", deadlines.row_of("sampler-60", os.getpid(), status))
    assert missed.startswith("not ready after 50 s")


@pytest.mark.parametrize("names", [[], ["sampler-7"], ["sampler-3", "sampler-4", "sampler-9", "member-0"]])
def test_names_come_back_from_words(names):
    """Those that were cut off do not."""
    assert names_in(in_words(names)) == set(names)
    even = [f"sampler-{2 * index}" for index in range(9)]
    assert names_in(in_words(even, 30)) == {"sampler-0", "sampler-2"}
