"""Folders of runs beside which somebody has put something else: what is a run is shown."""

import copy
import json
import os

import pytest

from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.commands import launch
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.plan import topology

ODD = (None, [], {}, "x", "a\0b", 5, -1e308, 10**400, True, [[]], {"a": {}})
#: Paths in run.json and in summary.json to what is read of them.
IN_PLAN = [["run"], ["algorithm"], ["balance"], ["components"], ["measured"], ["name"], ["socket_dir"]]
IN_PLAN += [
    ["run", "env"],
    ["run", "algorithm"],
    ["run", "resume_from"],
    ["components", "sampler"],
    ["ancestors"],
]
IN_PLAN += [
    ["components", "sampler", "options"],
    ["measured", "scaling"],
    ["run", "command"],
    ["data"],
    ["groups"],
    ["began_s"],
    ["run", "stop"],
]
IN_SUMMARY = [["best_return"], ["wall_s"], ["env_steps"], ["exit_reason"]]


def put(table, path, value):
    """A copy of a table with another value."""
    made = copy.deepcopy(table)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A good run, and one for each oddity."""
    place = tmp_path_factory.mktemp("runs")
    record = RunRecord(topology.load("pendulum"))
    plan, summary = json.loads(record.plan.to_json()), record.summary("done", 2.0, final=True)
    texts = [json.dumps(put(plan, path, odd)) for path in IN_PLAN for odd in ODD]
    texts += ["", "[]", "5", "\0" * 99, "[" * 200_000, json.dumps({"run": {}})]
    found = [(text, json.dumps(summary)) for text in texts]
    found += [(json.dumps(plan), json.dumps(put(summary, path, odd))) for path in IN_SUMMARY for odd in ODD]
    for reason in ("success 0.95 >= target", "return 1 >= 0.9,", "return 1 >= 1e"):
        found += [(json.dumps(plan), json.dumps({**summary, "exit_reason": reason}))]
    found += [(json.dumps(plan), "[" * 200_000)]
    (place.parent / f"{place.name}-sockets").mkdir()
    os.mkfifo(place.parent / f"{place.name}-sockets" / "lock")
    found += [(json.dumps({**plan, "socket_dir": f"{place}-sockets"}), json.dumps(summary))]
    for number, (text, about) in enumerate([(json.dumps(plan), json.dumps(summary)), *found]):
        run = place / (f"odd-{number}" if number else "good")
        run.mkdir()
        (run / "run.json").write_text(text)
        (run / "summary.json").write_text(about)
        look = {"t_s": 1.0, "env_steps": number, "mean_return": 1.0, "kind": "evaluation"}
        (run / "metrics.jsonl").write_text(json.dumps(look) + "\n")
    for name in ("run.json", "summary.json", "metrics.jsonl"):
        run = place / f"waits-{name}"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(plan))
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
    return place


@pytest.mark.parametrize("words", [["runs"], ["runs", "--json"], ["runs", "--env", "P*"], ["compare"]])
def test_an_odd_folder_hides_no_other(place, capsys, words):
    """Neither wrong types nor a FIFO, nor JSON nested too deep."""
    assert main([words[0], str(place), *words[1:]]) == 0
    assert "good" in capsys.readouterr().out or words[0] == "compare"


def test_a_current_folder_that_is_deleted_is_one_clear_line(tmp_path, monkeypatch, capsys):
    """Exit code 2."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert launch.main(["pendulum", "--check"]) == 2
    said = capsys.readouterr().err
    assert said == "spreeze-launch: the current folder has been deleted: change to one that exists\n"
