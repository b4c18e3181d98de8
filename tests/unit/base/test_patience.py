"""A write waits for room on its disk, and not for anything else."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq.base import patience
from spreeze_zmq.base.journal import Journal, read_journal
from spreeze_zmq.base.patience import BETWEEN_BEATS_S, PATIENCE_S, RETRY_S, patient
from spreeze_zmq.learner.cadence import Cadence
from spreeze_zmq.learner.publication import Record
from spreeze_zmq.nodes.transfer import Incoming
from spreeze_zmq.run.checkpoint import write_part
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import hand_over
from spreeze_zmq.wire.channels import RecordingWriter


def full(path):
    """Raise what a write to a full disk raises."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def full_device():
    """A descriptor of a disk that is always full."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def test_a_write_waits_for_room_and_says_so(tmp_path, full_device, monkeypatch, caplog):
    """No longer than it may, and then the file is named; another error is nobody's to wait for."""
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    tries = iter([full, full, lambda path: "written"])
    assert patient(lambda: next(tries)(tmp_path), tmp_path) == "written"
    assert f"the disk of {tmp_path} was full for" in caplog.text
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)
    with pytest.raises(OSError, match=f"No space .*'{tmp_path}'"):
        patient(lambda: os.write(full_device, b"x"), tmp_path)
    with pytest.raises(KeyError):
        patient(lambda: {}["x"], tmp_path)


def handed_over(folder):
    """A file of a run on another machine, for the head."""
    run = RunFolder(folder)
    run.summary.write_text("{}")
    hand_over(run, "evaluator-0", [run.summary])


ABOUT = {"name": "sampler-0", "channels": []}
PIECE = {"about": "evaluator-0.1", "path": "videos/1.mp4", "begin": 0, "size": 1}
ONE_BYTE = np.ones(1, np.uint8)


@pytest.mark.parametrize(
    "writes",
    [
        lambda folder: write_part(folder / "checkpoints" / "0001", "critic_learner.pt", Path.touch),
        lambda folder: Record(folder / "learning" / "x.jsonl", Cadence(0.0, every=1)).write({}, {}),
        lambda folder: RecordingWriter(folder / "recordings", ABOUT, 1.0).close(),
        handed_over,
        lambda folder: Incoming(folder, lambda taken: None, lambda *_: True).hear(PIECE, ONE_BYTE),
    ],
    ids=["checkpoint", "record", "recording", "outbox", "from another machine"],
)
def test_so_does_a_file_whose_folder_has_no_room(writes, tmp_path, monkeypatch):
    """On most disks a folder takes a block, before anything is in it."""
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    refused, mkdir = iter([True, True]), os.mkdir

    def mkdir_at_last(path, *mode):
        return full(path) if next(refused, False) else mkdir(path, *mode)

    (tmp_path / "run" / "outbox").mkdir(parents=True)
    monkeypatch.setattr(os, "mkdir", mkdir_at_last)
    writes(tmp_path / "run")
    assert next(refused, None) is None


@pytest.mark.parametrize(
    ("write", "most_s"),
    [
        (lambda folder: Journal(folder / "metrics.jsonl").write("status", 1.0, {}), PATIENCE_S),
        (
            lambda folder: Incoming(folder, lambda taken: None, lambda *_: True).hear(
                {**PIECE, "size": 4}, np.ones(4, np.uint8)
            ),
            BETWEEN_BEATS_S,
        ),
    ],
    ids=["the journal", "from another machine"],
)
def test_what_gets_room_little_by_little_waits_no_longer(write, most_s, tmp_path, monkeypatch):
    """For its folder and all of its bytes together: a head that writes hears no machine meanwhile."""
    clock_s, room_s, write_some, mkdir = [0.0], [0.0], os.write, os.mkdir

    def sleep(wait_s):
        clock_s[0] += wait_s

    def taken(do):
        if clock_s[0] < room_s[0]:
            full(tmp_path)
        room_s[0] = clock_s[0] + 0.75 * most_s
        return do()

    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: clock_s[0], sleep=sleep))
    monkeypatch.setattr(os, "mkdir", lambda path, *mode: taken(lambda: mkdir(path, *mode)))
    monkeypatch.setattr(os, "write", lambda file, data: taken(lambda: write_some(file, data[:1])))
    with pytest.raises(OSError, match="No space"):
        write(tmp_path)
    assert clock_s[0] == pytest.approx(most_s, abs=2.0 * RETRY_S)
    assert not list(tmp_path.glob("videos/*"))


def test_a_line_of_the_journal_is_whole_when_there_is_room(tmp_path, monkeypatch):
    """The disk took half of it first."""
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    taken, write = iter([10, None, 0]), os.write

    def some(descriptor, data):
        num = next(taken, len(data))
        return full(tmp_path) if num is None else write(descriptor, data[: num or len(data)])

    journal = Journal(tmp_path / "metrics.jsonl")
    monkeypatch.setattr(os, "write", some)
    journal.write("status", 1.0, {"env_steps": 512})
    monkeypatch.undo()
    assert [line["env_steps"] for line in read_journal(tmp_path / "metrics.jsonl")] == [512]


def test_so_is_a_line_of_a_learners_record(tmp_path, monkeypatch):
    """Of the losses at each publication by count, which two runs in lock-step write the same."""
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    taken, write = iter([5, None, 0, None]), os.write

    def some(descriptor, data):
        num = next(taken, len(data))
        return full(tmp_path) if num is None else write(descriptor, data[: num or len(data)])

    record = Record(tmp_path / "learning" / "critic_learner.jsonl", Cadence(0.0, every=1))
    monkeypatch.setattr(os, "write", some)
    for count in (1, 2):
        record.write({"critic_updates": count}, {"critic_loss": 0.5})
    monkeypatch.undo()
    lines = [json.loads(line) for line in record.path.read_text().splitlines()]
    assert lines == [{"critic_updates": count, "critic_loss": 0.5} for count in (1, 2)]
    next_record = Record(tmp_path / "next.jsonl", Cadence(0.0, every=1))
    next_record.go_on(record.path, 1)
    assert next_record.path.read_text() == record.path.read_text().splitlines(True)[0]
