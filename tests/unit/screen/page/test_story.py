"""What a browser is told of a run's journal."""

import numpy as np

from spreeze_zmq.base.files import Journal
from spreeze_zmq.broker.balancer import Balancer
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import story

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
    assert [point["return"] for point in points] == [0.0, -0.5, -1.0, -1.5, -2.0]
    assert points[-1] == told[-1]["point"]


def test_a_long_run_is_thinned_evenly_and_keeps_its_end(tmp_path, monkeypatch):
    """As many points as a page can draw, the last one always among them."""
    monkeypatch.setattr(story, "MAX_POINTS", 10)
    journal_of(RunFolder(tmp_path), 95)
    points = [e["about"]["t_s"] for e in story.journal(RunFolder(tmp_path)) if e["topic"] == "point"]
    assert points == list(range(4, 95, 10))


def test_a_torn_line_is_passed_over(tmp_path):
    """A broker that is killed leaves half a line."""
    journal_of(RunFolder(tmp_path), 3)
    with RunFolder(tmp_path).metrics.open("a") as file:
        file.write('{"state": "trai\n"kind": "status"}\n')
    assert len([e for e in story.journal(RunFolder(tmp_path)) if e["topic"] == "point"]) == 3


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
    assert limit["value"] == 75_000.0
    assert "the critics' updates alone" in limit["source"]
