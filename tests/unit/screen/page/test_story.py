"""What a browser is told of a run's journal."""

import json
import os
import subprocess
import sys

import numpy as np

from spreeze_zmq.base.journal import Journal
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.notes import Thinning
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import story
from tests.pace import slowness

PLAN = topology.load("pendulum")


def journal_of(folder, num_statuses):
    """A journal as a broker writes it: a status each second, an evaluation in the middle."""
    record, balancer, journal = RunRecord(PLAN), Balancer(PLAN), Journal(folder.metrics)
    record.take_hello("sampler-0", 7, {"role": "sampler", "pid": 1}, 0.0)
    for t_s in range(num_statuses):
        record.episodes.take(np.array([-t_s], np.float32), np.array([200], np.int32))
        journal.write("status", t_s, record.status("training", balancer.status(), t_s))
        journal.write("balance", t_s, balancer.figures(t_s))
        if t_s == num_statuses // 2:
            journal.write("evaluation", t_s, {"mean_return": -5.0, "std_return": 1.0, "best": True})
    journal.close()


def test_a_short_run_is_told_whole(tmp_path):
    """Every status as a point, in order, and the last one whole; what is not shown is left out."""
    journal_of(RunFolder(tmp_path), 5)
    told = story.journal(RunFolder(tmp_path))
    topics = [entry["topic"] for entry in told]
    assert topics == ["point", "point", "evaluation", "point", "point", "point", "status"]
    points = [entry["about"] for entry in told if entry["topic"] == "point"]
    assert [point["t_s"] for point in points] == [0, 1, 2, 3, 4]
    assert [point["training_return"] for point in points] == [0.0, -0.5, -1.0, -1.5, -2.0]
    assert points[-1] == told[-1]["point"]


def test_a_long_run_is_thinned_evenly_in_time_and_keeps_its_end(tmp_path, monkeypatch):
    """As many points as a page can draw, the last one always among them."""
    monkeypatch.setattr(story, "MAX_POINTS", 10)
    journal_of(RunFolder(tmp_path), 95)
    points = [e["about"]["t_s"] for e in story.journal(RunFolder(tmp_path)) if e["topic"] == "point"]
    assert (len(points), points[-1]) == (10, 94)
    assert set(np.diff(points)) == {9, 10}


def test_the_lag_that_is_drawn_is_the_present_one():
    """Of a run of an earlier release, whose statuses have none, that of all rollouts so far."""
    record = RunRecord(PLAN)
    lag = {"p50": 1, "p99": 2, "recent_p50": 8, "recent_p99": 9, "max": 9, "stale": 0}
    about = {"role": "critic_learner", "pid": 1}
    record.take_hello("critic_learner-0", 7, about, 0.0)
    record.learning.policy_lags["critic_learner-0/7"] = lag
    status = record.status("training", Balancer(PLAN).status(), 1.0)
    drawn = story.point(status)
    assert (drawn["lag_p50"], drawn["lag_p99"]) == (8, 9)
    earlier = {name: value for name, value in status["policy_lag"].items() if "recent" not in name}
    drawn = story.point({**status, "policy_lag": earlier})
    assert (drawn["lag_p50"], drawn["lag_p99"]) == (1, 2)


def test_a_torn_line_is_passed_over(tmp_path):
    """A broker that is killed leaves half a line."""
    journal_of(RunFolder(tmp_path), 3)
    with RunFolder(tmp_path).metrics.open("a") as file:
        file.write('{"state": "trai\n"kind": "status"}\n')
    assert len([e for e in story.journal(RunFolder(tmp_path)) if e["topic"] == "point"]) == 3


def test_what_is_no_journal_is_no_story(tmp_path):
    """A run's folder may be anybody's: nobody waits for a FIFO, nor for a file without an end of line."""
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert story.journal(RunFolder(tmp_path)) == []
    (tmp_path / "metrics.jsonl").unlink()
    with (tmp_path / "metrics.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    assert story.journal(RunFolder(tmp_path)) == []


WEEK = """
import json, resource, sys, time
from pathlib import Path
from spreeze_zmq.run.curves import read_curve
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import story

folder, peak = RunFolder(Path(sys.argv[1])), lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, began_s = peak(), time.process_time()
told = [json.dumps(entry) for entry in story.journal(folder)]
page_s, page_mb = time.process_time() - began_s, (peak() - before) / 1e3
curve = read_curve(folder.path)
print(len(told), page_s, page_mb, len(curve.mean_return), time.process_time() - began_s - page_s)
"""


def test_a_weeks_run_opens_within_a_second_and_100_mb(tmp_path):
    """And ``spreeze compare`` reads its curve within five. The lines are as long as a real run's."""
    record, balancer = RunRecord(PLAN), Balancer(PLAN)
    status = record.status("training", balancer.status(), 0.0)
    figures = {f"figure_{number}": number / 7 for number in range(36)}
    rows = {f"sampler-{number}": figures for number in range(2)}
    status = json.dumps(
        {**status, "t_s": "T", "gauges": figures, "others": rows, "devices": rows, "kind": "status"}
    )
    balance = json.dumps({"processes": rows, "t_s": "T", "kind": "balance"})
    look = {"env_steps": 5, "mean_return": -5.0, "std_return": 1.0, "best": False, "info": figures}
    look = json.dumps({**look, "t_s": "T", "kind": "evaluation"})
    thinning, texts = Thinning(), (status, balance, look)
    assert [len(text) > most for text, most in zip(texts, (5500, 2000, 700), strict=True)] == [True] * 3
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for second in range(7 * 86_400):
            if thinning.keeps("status", second):
                file.writelines(text.replace('"T"', f"{second}.0", 1) + "\n" for text in texts)
    command = [sys.executable, "-c", WEEK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    told, page_s, page_mb, looks, curve_s = map(float, done.stdout.split())
    assert 2000 < told <= 2 * (story.MAX_POINTS + story.MAX_ENTRIES)
    assert looks > 11_000
    assert (page_s < slowness(), page_mb < 100, curve_s < 5 * slowness()) == (True, True, True), done.stdout


def test_a_run_without_a_journal_has_no_story(tmp_path):
    """It has just begun, or ended before anything happened."""
    assert story.journal(RunFolder(tmp_path)) == []


def test_the_machines_limit_is_told_with_its_source():
    """Where the batch was measured the plan holds the critics' updates alone."""
    assert story.limits(PLAN) == {}
    curve = [[128, 50_000.0], [PLAN.learning.batch_size, 75_000.0]]
    PLAN.measured["batch_size"] = {"chosen": 256, "reaches": 1.0, "curve": curve}
    limit = story.limits(PLAN)["trained_transitions_per_s"]
    PLAN.measured.clear()
    assert limit["curve"] == curve
    assert "the critics' updates alone" in limit["source"]
