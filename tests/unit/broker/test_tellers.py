"""Who may say what to the broker."""

from dataclasses import replace

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.validation import validated
from spreeze_zmq.plan import topology
from spreeze_zmq.wire import Message

LAUNCHER = 7
PLAN = replace(topology.load("pendulum"), launcher=LAUNCHER)
EXITED = {"name": "sampler-0", "how": "was killed by SIGKILL", "restarting": True}
WORKERS = {"role": "sampler", "count": 1, "reason": "as the topology says"}
STOP = {"reason": "enough"}


def heard(kind, fields, sender, incarnation, plan=PLAN):
    """What the broker makes of a message."""
    return validated(Message(kind, fields, {}, sender, incarnation), plan)


@pytest.mark.parametrize(
    ("kind", "fields"), [("exited", EXITED), ("workers", WORKERS), ("stop_request", STOP)]
)
def test_the_launcher_is_the_one_that_started_the_run(kind, fields):
    """Another process that calls itself so is refused; a run that nobody launched has any."""
    assert heard(kind, fields, "launcher", LAUNCHER) == fields
    with pytest.raises(WireError, match=r"wrong_sender.*which did not start this run"):
        heard(kind, fields, "launcher", LAUNCHER + 1)
    assert heard(kind, fields, "launcher", LAUNCHER + 1, replace(PLAN, launcher=0)) == fields


@pytest.mark.parametrize(
    ("kind", "fields", "sender"),
    [
        ("exited", EXITED, "sampler-0"),
        ("workers", WORKERS, "observer-0"),
        ("episodes", {}, "evaluator-0"),
        ("evaluation", {}, "sampler-0"),
        ("part", {}, "visualizer-0"),
    ],
)
def test_each_kind_has_its_senders(kind, fields, sender):
    """Of whom else it is refused."""
    with pytest.raises(WireError, match=f"wrong_sender: {kind} came from '{sender}', expected"):
        heard(kind, fields, sender, 1)


def test_a_failure_is_told_by_who_has_failed_or_by_the_launcher():
    """Of whom else it is refused; a name is cut to what is one."""
    failure = {"name": "sampler-0", "summary": "it fell", "traceback": ""}
    assert (
        heard("failure", failure, "sampler-0", 1)
        == heard("failure", failure, "launcher", LAUNCHER)
        == failure
    )
    with pytest.raises(WireError, match="wrong_sender: failure of 'sampler-0' came from 'sampler-1'"):
        heard("failure", failure, "sampler-1", 1)
    assert len(heard("failure", {**failure, "name": "x" * 9000}, "x" * 9000, 1)["name"]) == 80


def test_what_a_week_counts_on_a_fast_gpu_is_believed():
    """A learner's products pass what may be trained on within seconds, as does what several GPUs could; how
    much they are of that is known all the same.
    """
    run, about = RunRecord(PLAN), {"role": "critic_learner", "name": "critic_learner-0", "pid": 1}
    about |= {"time_s": 0.0, "uptime_s": 1.0, "cpu_s": 0.5, "rss_bytes": 1, "gauges": {}}
    for t_s in (604_800.0, 604_810.0):
        clock = {"busy": t_s, "blocked": 0.0, "starved": 0.0, "idle": 0.0}
        counters = {"critic_updates": int(100 * t_s), "trained_transitions": int(2e6 * t_s)}
        fields = {**about, "clock_s": clock, "counters": {**counters, "critic_flops": 4e14 * t_s}}
        fields["device"] = {"limit_flops_per_s": 2e15}
        heard_of = heard("report", fields, "critic_learner-0", 1)
        assert heard_of["counters"] == fields["counters"]
        run.take_report("critic_learner-0", 1, heard_of, t_s)
    assert run.learning.rates.rate("critic_flops", t_s) == pytest.approx(4e14)
    assert run.learning.devices["critic_learner-0"] == {"limit_flops_per_s": 2e15}
