"""What the launcher's cores are used for: neither other groups nor learners elsewhere count there."""

import json

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
    monkeypatch.setattr(cores, "core_time", lambda pid: 4)
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


def test_a_resumed_run_has_not_computed_what_its_parent_has(monkeypatch):
    """Its learners count on, from 100 updates before what the checkpoint has; the critic is there first."""
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: 0.0)
    run = RunRecord(topology.load("pendulum"))
    run.resume({"t_s": 100.0, "counts": {"critic_updates": 100_000, "actor_updates": 100_000}})
    for t_s, critic, actor in ((101.0, -100, -100), (102.0, 0, -100), (103.0, 100, 0), (123.0, 2_100, 2_000)):
        for part, more in (("critic", critic), ("actor", actor)):
            fields = report(f"{part}_learner", t_s - 100.0, 0)
            updates = 100_000 + more
            fields["counters"] = {f"{part}_updates": updates, f"{part}_flops": 1e7 * updates}
            fields["device"] = {"limit_flops_per_s": 1e10}
            run.take_report(f"{part}_learner-0", 1, fields, t_s)
    shares = run.core_shares(123.0)
    spent_s = (
        20.0 + 21.0
    )  # since the first update, which the critic says a second before the actor's next report
    assert shares.products / (shares.products + shares.updates) == pytest.approx(4.0 / spent_s)


@pytest.mark.parametrize(("elsewhere", "flops"), [("critic_learner", 1e9), ("actor_learner", 3e9)])
def test_a_learner_elsewhere_has_no_part_in_the_arithmetic_of_these_cores(monkeypatch, elsewhere, flops):
    """Neither in the products of updates, nor in what all of these cores could compute; its CPU time is the
    run's.
    """
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: 0.0)
    run = RunRecord(topology.load("pendulum", [f"placement.{elsewhere}=node"]))
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 7.5, "memory_bytes": 1 << 30}
    about |= {"sent_bytes_per_s": 1e6, "received_bytes_per_s": 0.0, "most": 0, "samplers": 0, "gone": False}
    run.machines.take({**about, "processes": [f"{elsewhere}-0"]})
    for t_s in (0.0, 10.0, 20.0):
        for part, per_s in (("critic", 3e9), ("actor", 1e9)):
            fields = report(f"{part}_learner", t_s, int(t_s))
            fields["counters"][f"{part}_flops"] = per_s * t_s
            fields["device"] = {"limit_flops_per_s": 1e10}
            run.take_report(f"{part}_learner-0", 1, fields, t_s)
    assert run.summary("", 20.0, final=True)["efficiency"]["flops_per_s"] == flops
    shares = run.core_shares(20.0)
    assert shares.products / (shares.products + shares.updates) == pytest.approx(flops / 1e10)
    assert run.core_s == 40.0


def test_what_others_do_while_the_run_stands_still_is_none_of_its_time(monkeypatch):
    """Of two CPUs others use one all the time, an hour's pause included, which the run's clock leaves out."""
    busy_s = 0.0
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: busy_s)
    monkeypatch.setattr(cores, "core_time", lambda pid: 2)
    run = RunRecord(topology.load("pendulum"))
    for t_s in range(30):
        if t_s == 12:
            busy_s += 3600.0
            run.cores.stood_still()
        busy_s += 1.5
        run.take_report("critic_learner-0", 1, report("critic_learner", 0.5 * t_s, t_s), float(t_s))
        row = run.cores.row(float(t_s))
        assert row.get("cpus_of_others", 1.0) == pytest.approx(1.0)
    assert run.core_shares(29.0).others == pytest.approx(0.5, abs=0.01)


def test_what_comes_after_training_is_in_no_figure_over_the_run(monkeypatch):
    """Its samplers are stopped after 60 s of 2,000 steps a second; the last policy is played until 75 s, in
    which a broker that is started again forgets nothing.
    """
    busy_s = 0.0
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: busy_s)
    monkeypatch.setattr(cores, "core_time", lambda pid: 2)
    run, spent_s = RunRecord(topology.load("pendulum")), {"sampler": 30.0, "critic_learner": 60.0}
    for t_s in (0.0, 20.0, 60.0):
        busy_s = 1.5 * t_s
        for role in spent_s:
            fields = report(role, spent_s[role] * t_s / 60.0, int(t_s))
            fields["counters"] |= {"env_steps": 2000 * t_s, "critic_flops": 1e9 * t_s}
            fields["device"] = {"limit_flops_per_s": 1e10}
            run.take_report(f"{role}-0", 1, fields, t_s)
    busy_s += 1.0
    run.take_stopping(["sampler"], 60.0)
    run.take_stopping(["critic_learner"], 61.0)
    before, run = run, RunRecord(run.plan)
    run.restore(json.loads(json.dumps(before.to_dict())), 62.0)
    busy_s += 30.0
    run.cores.stood_still()
    run.take_report("evaluator-0", 1, report("evaluator", 15.0, 0), 75.0)
    summary = run.summary("", 75.0, final=True)
    assert (summary["wall_s"], summary["env_steps_per_s"]) == (75.0, 2000.0)
    assert summary["efficiency"]["flops_per_s"] == 1e9
    expected = {"products": 4.0, "updates": 36.0, "sampling": 20.0, "others": 1.0, "idle": 19.0}
    shares = {name: 80.0 * share for name, share in summary["cores"].items() if share}
    assert shares == pytest.approx(expected)


def test_a_broker_that_has_come_back_knows_what_the_products_of_updates_took(monkeypatch):
    """Not only from the next report on, which says at what rate a learner's core computes them."""
    monkeypatch.setattr(cores, "busy_cpu_s", lambda pid: 0.0)
    run = RunRecord(topology.load("pendulum"))
    for t_s in (10.0, 20.0, 30.0):
        fields = report("critic_learner", t_s, int(t_s))
        fields["counters"]["critic_flops"] = 5e9 * t_s
        fields["device"] = {"limit_flops_per_s": 1e10}
        run.take_report("critic_learner-0", 1, fields, t_s)
    state = json.loads(json.dumps(run.to_dict()))
    back = RunRecord(run.plan)
    back.restore(state, 31.0)
    assert back.core_shares(31.0) == run.core_shares(31.0)
    assert back.core_shares(31.0).products > 0.0
