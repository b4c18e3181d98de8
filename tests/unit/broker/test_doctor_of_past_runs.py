"""What keeps a run from learning is found in its journal too, whoever has written that."""

import json
import random

import numpy as np
import pytest

from spreeze_zmq.base.files import plain
from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.broker.doctor import Doctor, findings_of
from spreeze_zmq.broker.doctor.trend import MOST_POINTS, Trend, mean_of
from spreeze_zmq.broker.doctor.vitals import Vitals
from spreeze_zmq.plan import topology
from tests.unit.broker.lived import BALANCE, Lived


def test_a_past_run_is_judged_as_the_live_one_was(tmp_path):
    """From the journal that the live run has written, by the same rules."""
    run = Lived("algorithm.learning_rate=1.0", journal=Journal(tmp_path / "metrics.jsonl"))
    run.see(reward=1e5 * run.rollout.reward)
    run.live(15)
    run.journal.close()
    plan = json.loads(run.record.plan.to_json())
    rows = findings_of(plan, read_journal(tmp_path / "metrics.jsonl"))
    assert rows == run.record.doctor.rows()
    assert [row["name"] for row in rows] == ["learning_rate", "large_rewards"]


def test_what_is_set_while_a_run_trains_is_judged_as_what_it_began_with():
    """At once, and what was said of the value before leaves; the journal tells it, too."""
    run = Lived("algorithm.learning_rate=0.1", "balance.replay_ratio=1e-3")
    values = run.record.requests.values
    assert run.live(3) == ["learning_rate", "replay_ratio"]
    values |= {"learning_rate": 1e-3, "replay_ratio": 8.0}
    assert run.live(1) == []
    assert [row["name"] for row in run.heard if not row["holds"]] == ["learning_rate", "replay_ratio"]
    values |= {"learning_rate": 0.5, "tau": 0.0}
    assert run.live(20) == ["learning_rate", "still_targets"]
    assert [row["seen"] for row in run.heard[4:]] == [
        "algorithm.learning_rate is 0.5",
        "algorithm.tau is 0, so target networks never move",
    ]
    values |= {"replay_ratio": 1e-6}  # of a run that trains
    assert run.live(20) == ["learning_rate", "still_targets", "replay_ratio"]


def test_a_resumed_run_hears_nothing_of_values_that_were_replaced_in_the_one_before():
    """Whoever judges it: its broker, or a reader of its journal."""
    plan = json.loads(topology.load("pendulum", ["algorithm.learning_rate=0.1"]).to_json())
    resumed = {"kind": "resumed", "t_s": 60.0, "turned": {"learning_rate": 0.01}, "inherited": True}
    doctor = Doctor(plan)
    assert [row["name"] for row in doctor.rows()] == ["learning_rate"]
    doctor.read([resumed])
    assert (doctor.rows(), doctor.news()) == ([], [])
    status = {"kind": "status", "t_s": 61.0, "values": {"learning_rate": 0.1}}
    assert [row["name"] for row in findings_of(plan, [resumed, status])] == ["learning_rate"]


def test_the_error_of_a_mean_is_that_of_a_sample():
    """Of the few looks that a third of a curve has: 5 % that a return has risen by chance were more."""
    assert mean_of([1.0, 3.0]) == (2.0, pytest.approx(1.0))
    assert mean_of([5.0]) == (5.0, 0.0)
    vitals, returns = Vitals({}), np.random.default_rng(0).normal(size=40)
    for part in (returns[:15], returns[15:]):
        vitals.take("episodes", 1.0, {"count": len(part), "mean": part.mean(), "std": part.std()})
    mean, error = returns.mean(), returns.std(ddof=1) / np.sqrt(40)
    assert vitals.random_return == (pytest.approx(mean), pytest.approx(error))


def test_a_curve_is_thinned_evenly_in_time_however_often_it_came():
    """The journal of a long run has ever fewer lines; all at one time are no more either."""
    trend, dense = Trend(), Trend()
    for second in range(100_000):
        dense.add(second, float(second))
        if second % (1 + second // 1800) == 0:
            trend.add(second, float(second))
    for found in (trend, dense):
        assert MOST_POINTS // 3 < len(found.values) <= MOST_POINTS
        apart = np.diff(found.values)
        assert apart.max() < 1.5 * apart.min()
    for _ in range(10 * MOST_POINTS):
        trend.add(1.0, 1e6)
    assert len(trend.values) <= MOST_POINTS


def test_a_journal_of_an_earlier_version_has_no_findings():
    """What it lacks is not judged."""
    plan = json.loads(topology.load("pendulum").to_json())
    old = [{"kind": "status", "t_s": float(t), "state": "training", "env_steps": 100 * t} for t in range(30)]
    assert findings_of(plan, [*old, {"kind": 3}, {}]) == []


def test_a_strangers_journal_breaks_nothing():
    """Any value in any field of a real status, or of the plan, from one look to the next."""
    draw, odd = random.Random(0), [None, [], {}, "x", -1, 1e308, True, float("nan"), {"a": None}, 1.0]
    run = Lived()
    run.live(3)
    real = plain(run.record.status("training", BALANCE, 3.0))
    plan, figures = (
        json.loads(run.record.plan.to_json()),
        ("count", "mean", "std", "min", "max", "mean_return"),
    )

    def spoiled(fields):
        """Some fields replaced; of maps some of theirs."""
        return {
            name: draw.choice(odd)
            if draw.random() < 0.1
            else (spoiled(value) if isinstance(value, dict) else value)
            for name, value in fields.items()
        }

    for _ in range(200):
        journal = [{**spoiled(real), "kind": "status", "t_s": float(t)} for t in range(12)]
        for kind in ("evaluation", "episodes"):
            journal += [{**{name: draw.choice(odd) for name in figures}, "kind": kind, "t_s": 1.0}]
        draw.shuffle(journal)
        findings_of(plan, journal)
        findings_of(spoiled(plan), journal)
