"""Texts of others, which would retitle the terminal, clear it or pass for a line of ours, are shown."""

import io
import json
import logging

import pytest
from rich.console import Console

from spreeze_zmq.broker.problems import RefusalRecord
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.commands.spreeze import main
from spreeze_zmq.component.life import Lines
from spreeze_zmq.plan import topology
from spreeze_zmq.screen.terminal.view import StatusView

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\r\nforged"
#: What a terminal obeys; every other program's reader has an end of line only.
OBEYED = ("\x1b", "\x07", "\x9b", "\r")


def spoilt(value):
    """Plain values with a hostile text in every text but those that files are found by."""
    if isinstance(value, dict):
        kept = ("kind", "state", "algorithm", "role", "device")
        return {name: item if name in kept else spoilt(item) for name, item in value.items()}
    if isinstance(value, list):
        return [spoilt(item) for item in value]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.fixture
def folder(tmp_path):
    """A run's folder, every text of which is hostile."""
    path = tmp_path / "runs" / f"a{HOSTILE[:10]}"
    path.mkdir(parents=True)
    record = RunRecord(topology.load("pendulum", ["algorithm.learning_rate=1.0"]))
    record.failures.take({"name": "sampler-0", "summary": "it fell", "traceback": ""}, 1.0, survived=True)
    about = {"node": "node-1", "host": "desk2", "cores": 8, "busy": 1.0, "memory_bytes": 1}
    about |= {"sent_bytes_per_s": 1.0, "received_bytes_per_s": 1.0, "most": 8, "samplers": 1}
    record.machines.take({**about, "processes": ["sampler-0"], "gone": False})
    plan = json.loads(record.plan.to_json())
    plan["run"]["env"] += HOSTILE
    plan["environment"]["id"] += HOSTILE
    (path / "run.json").write_text(json.dumps(plan))
    status = record.status("training", {"movable": True, "settled": True, "last_change": ""}, 1.0)
    entries = [
        {"kind": "status", **spoilt(status)},
        {"kind": "evaluation", "t_s": 1.0, "env_steps": 9, "mean_return": 1.0},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (path / "summary.json").write_text(json.dumps(spoilt(record.summary("done", 2.0, final=True))))
    return path


@pytest.mark.parametrize("command", ["runs", "compare", "doctor", "nodes", "eval", "export", "play"])
@pytest.mark.parametrize("inside", [True, False])
def test_no_command_hands_on_what_a_folder_says_to_the_terminal(folder, capsys, command, inside):
    """Whether it can do something with the folder or refuses it."""
    main([command, str(folder if inside and command != "runs" else folder.parent)])
    said = "".join(capsys.readouterr())
    assert said
    assert not [mark for mark in OBEYED if mark in said], repr(said)


def test_a_status_and_notes_of_others_are_shown(folder):
    """As the broker has published them, and as a launcher notes them."""
    text = io.StringIO()
    view = StatusView(Console(file=text, width=200, force_terminal=False))
    refusals = RefusalRecord()
    row = {"sender": HOSTILE, "kind": HOSTILE, "word": HOSTILE, "count": 3, "good": 0, "first": HOSTILE}
    [refused] = refusals.take("broker-0", [row], 1.0)
    view.begin({"run": HOSTILE})
    view.note(refused.row(1.0).line)
    status = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    view.show_processes({f"sampler-0{HOSTILE}": HOSTILE})
    view.update(status)
    view.close()
    assert "forged" in text.getvalue()
    assert not [mark for mark in OBEYED if mark in text.getvalue()]


def test_a_line_of_the_log_is_one_of_ours():
    """What it quotes looks like none."""
    forged = "x\n2026-01-01 00:00:00,000 INFO all is well\x1b[2J"
    record = logging.LogRecord("spreeze", logging.WARNING, "", 0, "refused: %s", (forged,), None)
    first, second = Lines("%(asctime)s %(levelname)s %(message)s").format(record).split("\n")
    assert " WARNING refused: x" in first
    assert second == "    2026-01-01 00:00:00,000 INFO all is well\\x1b[2J"
