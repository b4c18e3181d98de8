"""A checkpoint is complete or is not read, and a run resumes from the newest complete one."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.files import TEMPORARY
from spreeze_zmq.run.checkpoint import (
    MANIFEST,
    Part,
    SavedCheckpoint,
    begins_at,
    complete,
    latest,
    newest,
    prune,
    write_part,
)

PARTS = {"critic_learner.pt": b"critic" * 1000, "actor_learner.pt": b"actor" * 1000}


def save(checkpoints, name, parts=PARTS, **state):
    """A complete checkpoint."""
    folder = checkpoints / name
    written = [
        write_part(folder, part, lambda path, d=data: path.write_bytes(d)) for part, data in parts.items()
    ]
    complete(folder, written, state)
    return folder


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path):
    """With its parts and state, and no skipped checkpoint."""
    folder = save(tmp_path, "0001", env_steps=512, best_return=None)
    found, skipped = newest(tmp_path)
    assert found.path == folder
    assert found.state == {"env_steps": 512, "best_return": None}
    assert {name: found.part(name).read_bytes() for name in PARTS} == PARTS
    assert skipped == ()
    assert sorted(path.name for path in folder.iterdir()) == sorted([*PARTS, MANIFEST])


def test_the_newest_complete_one_is_the_latest(tmp_path):
    """The newest by its name, which is padded with zeros, not by its files' times."""
    save(tmp_path, "0010")
    save(tmp_path, "0009")
    assert latest(tmp_path).path.name == "0010"


def test_without_a_checkpoint_there_is_no_latest(tmp_path):
    """No folder, and an empty one."""
    assert latest(tmp_path / "none") is None
    assert latest(tmp_path) is None


def test_a_checkpoint_without_its_manifest_is_never_read(tmp_path):
    """A run died after its learners had written, before its broker had."""
    save(tmp_path, "0001")
    write_part(tmp_path / "0002", "critic_learner.pt", lambda path: path.write_bytes(b"x"))
    found, [said] = newest(tmp_path)
    assert found.path.name == "0001"
    assert "0002: it has no MANIFEST.json" in said


def cut(folder):
    """The end of a part is missing."""
    os.truncate(folder / "actor_learner.pt", 17)


def flip(folder):
    """One bit is another, the size is the same."""
    data = bytearray((folder / "actor_learner.pt").read_bytes())
    data[100] ^= 1
    (folder / "actor_learner.pt").write_bytes(data)


def lose(folder):
    """A part is not there."""
    (folder / "actor_learner.pt").unlink()


def tear_manifest(folder):
    """The manifest ends in the middle."""
    os.truncate(folder / MANIFEST, 30)


def empty_manifest(folder):
    """The manifest is an empty JSON object."""
    (folder / MANIFEST).write_text("{}")


def list_manifest(folder):
    """The manifest is a JSON list."""
    (folder / MANIFEST).write_text("[]")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "actor_learner.pt: it has 17 bytes, should have 5000"),
        (flip, "actor_learner.pt: its CRC-32 is"),
        (lose, "actor_learner.pt: No such file"),
        (tear_manifest, "cannot be read as a manifest"),
        (empty_manifest, "cannot be read as a manifest"),
        (list_manifest, "cannot be read as a manifest"),
    ],
)
def test_a_torn_checkpoint_is_passed_over_and_named(tmp_path, damage, said):
    """An older complete checkpoint is used, and the message names the damaged file and the problem."""
    save(tmp_path, "0001", env_steps=1)
    damage(save(tmp_path, "0002", env_steps=2))
    found, [line] = newest(tmp_path)
    assert found.state == {"env_steps": 1}
    assert said in line
    with pytest.raises(CheckpointError, match="use an earlier checkpoint"):
        SavedCheckpoint.read(tmp_path / "0002")


def test_a_newer_format_is_refused_with_the_reason(tmp_path):
    """The message names both formats."""
    manifest = save(tmp_path, "0001") / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match="its format is 99, this version reads 1"):
        SavedCheckpoint.read(tmp_path / "0001")


WRITER = """
import sys, time
from pathlib import Path
from spreeze_zmq.run.checkpoint import write_part
def write(path):
    with path.open("wb") as file:
        file.write(b"half")
        file.flush()
        print("writing", flush=True)
        time.sleep(60)
write_part(Path(sys.argv[1]), "critic_learner.pt", write)
"""


def test_a_writer_killed_in_the_middle_leaves_no_part(tmp_path):
    """The part's name does not exist; a later process writes it, and pruning removes the old folder."""
    save(tmp_path, "0001")
    folder = tmp_path / "0002"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"writing\n"
    finally:
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
    [left] = folder.iterdir()
    assert left.name.startswith(TEMPORARY)
    assert latest(tmp_path).path.name == "0001"
    assert prune(tmp_path) == []
    save(tmp_path, "0002")
    assert latest(tmp_path).path.name == "0002"
    save(tmp_path, "0003")
    assert prune(tmp_path, keep=1) == [folder, tmp_path / "0001"]


def test_a_writer_that_raises_leaves_nothing(tmp_path):
    """The writer's own error is raised."""

    def write(path):
        path.write_bytes(b"half")
        raise RuntimeError("no such tensor")

    with pytest.raises(RuntimeError, match="no such tensor"):
        write_part(tmp_path, "critic_learner.pt", write)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_the_file_and_the_mend(tmp_path):
    """The half-written file is removed."""

    def write(path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        CheckpointError, match=r"critic_learner.pt cannot be written: No space left .*; make room"
    ):
        write_part(tmp_path, "critic_learner.pt", write)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_does_not_reach_its_place_completes_nothing(tmp_path, monkeypatch):
    """As where its writer dies: until it is whole, a reader finds the checkpoint incomplete."""
    save(tmp_path, "0001")
    folder = tmp_path / "0002"
    folder.mkdir()

    def replace(source, target):
        assert json.loads(Path(source).read_text())
        assert not Path(target).exists()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(CheckpointError, match=rf"{MANIFEST} cannot be written"):
        complete(folder, [], {"env_steps": 1})
    assert list(folder.iterdir()) == []
    assert latest(tmp_path).path.name == "0001"


def test_the_path_that_is_written_ends_as_the_part_does(tmp_path):
    """np.save appends .npy to any other name."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    part = write_part(tmp_path / "0001", "replay_obs.npy", lambda path: np.save(path, array))
    complete(tmp_path / "0001", [part], {})
    np.testing.assert_array_equal(np.load(latest(tmp_path).part("replay_obs.npy")), array)


@pytest.mark.parametrize("name", ["", MANIFEST, "../critic.pt", "a/b", ".hidden", "-x", "new\nline"])
def test_a_part_has_a_plain_name(tmp_path, name):
    """Nothing is written outside the folder or under a reserved name."""
    with pytest.raises(ValueError, match="cannot name a part"):
        write_part(tmp_path, name, lambda path: path.write_bytes(b""))


@pytest.mark.parametrize("name", ["../outside", "a\0b", MANIFEST, "", "/tmp"])
def test_a_manifest_of_parts_elsewhere_is_torn(tmp_path, name):
    """Somebody else may have written it: nothing of his leads to another file, or ends in a traceback."""
    folder = tmp_path / "checkpoint"
    complete(folder, [write_part(folder, "a.pt", lambda path: path.write_bytes(b"x"))], {})
    text = (folder / MANIFEST).read_text().replace('"a.pt"', json.dumps(name))
    (folder / MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match="cannot name a part"):
        SavedCheckpoint.read(folder)


def test_a_checkpoint_is_not_completed_without_its_parts(tmp_path):
    """One of the described parts does not exist."""
    part = write_part(tmp_path, "critic_learner.pt", lambda path: path.write_bytes(b"abc"))
    missing = Part("actor_learner.pt", 3, 0)
    with pytest.raises(CheckpointError, match=r"actor_learner.pt: No such file"):
        complete(tmp_path, [part, missing], {})
    assert not (tmp_path / MANIFEST).exists()


def test_a_part_travels_as_json(tmp_path):
    """From the process that wrote it to the one that completes the checkpoint."""
    part = write_part(tmp_path, "critic_learner.pt", lambda path: path.write_bytes(b"123456789"))
    assert part == Part("critic_learner.pt", 9, 0xCBF43926)  # the check value of CRC-32
    assert Part.from_dict(json.loads(json.dumps(part.to_dict()))) == part


def test_a_part_that_is_not_there_is_named_with_those_that_are(tmp_path):
    """As for a run of other components."""
    save(tmp_path, "0001")
    with pytest.raises(
        CheckpointError, match=r"no part 'replay.npy', only critic_learner.pt, actor_learner.pt"
    ):
        latest(tmp_path).part("replay.npy")


def test_pruning_keeps_the_newest_complete_ones(tmp_path):
    """Newer folders stay too, as they may still be written."""
    for number in range(1, 6):
        save(tmp_path, f"000{number}")
    lose(tmp_path / "0004")
    (tmp_path / "0006").mkdir()
    assert [path.name for path in prune(tmp_path, keep=2)] == ["0004", "0002", "0001"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0003", "0005", "0006"]


def test_pruning_never_deletes_the_only_complete_one(tmp_path):
    """Whatever ``keep`` is, and however many damaged ones are newer."""
    save(tmp_path, "0001")
    for number in range(2, 6):
        lose(save(tmp_path, f"000{number}"))
    assert prune(tmp_path, keep=0) == []
    assert latest(tmp_path).path.name == "0001"


def test_where_a_run_begins_is_known_also_where_its_checkpoint_is_gone(tmp_path):
    """By its counts, else by the name of its folder."""
    path = save(tmp_path, "000000000312-000000009000", counts={"env_steps": 304})
    assert begins_at(str(path)) == 304
    (path / MANIFEST).unlink()
    assert begins_at(str(path)) == 312
    assert begins_at(None) == 0
