"""A run's folder may be on a disk that has no links, as exFAT and some network shares, or that is full for a
moment: all goes on there.
"""

import errno
import os
import re
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.base import patience
from spreeze_zmq.component.handing import Handing
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import Replay
from spreeze_zmq.run.checkpoint import Part, SavedCheckpoint, complete, write_part
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import errands
from tests.unit.replay.made import options, spec


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run's, below which nothing can be linked."""

    def refusing(way):
        def link(source, target, *rest, **others):
            if Path(target).is_relative_to(tmp_path):
                raise PermissionError(1, "Operation not permitted", str(target))
            return way(source, target, *rest, **others)

        return link

    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    return RunFolder.create("run", str(tmp_path / "run"))


def vault_of(folder, replay, parts=None):
    """That of a critic learner, whose reports say what parts it has written."""
    component = SimpleNamespace(
        plan=topology.load("pendulum", ["run.save_replay=true"]),
        role="critic_learner",
        folder=folder,
        on=lambda *_: None,
        report=lambda kind, fields, files: None if parts is None else parts.append(fields["part"]),
        send_report=lambda: None,
        count_step=lambda: None,
    )
    return Vault(component, dict, replay, lambda: True)


def test_a_replay_is_restored_there(folder):
    """Its files have other names in a checkpoint than the replay gives them."""
    before, after = (vault_of(folder, Replay(spec(), options(64))) for _ in range(2))
    before.replay.ring.num_added = 40
    before._save("one", {}, exact=False)
    place = folder.checkpoints / "one"
    after._restore_replay(SavedCheckpoint(place, {}, dict.fromkeys(os.listdir(place))))
    assert len(after.replay) == 40


def at_its_flush(monkeypatch):
    """The disk says that it is full as network shares and quotas do, at the end."""
    flush, refused = os.fsync, set()

    def flush_later(descriptor):
        name = re.sub(r"\.writing-[^-]+-", "", os.readlink(f"/proc/self/fd/{descriptor}"))
        if name not in refused and not os.path.isdir(name):
            refused.add(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", flush_later)
    return refused


def in_its_middle(monkeypatch):
    """A file takes 200 bytes at first. A limit of files stands for that of a disk, which needs root."""
    refused, limits = set(), resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_later(folder, name, write):
        def once(path):
            if name in refused:
                write(path)
                return
            refused.add(name)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
            try:
                write(path)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            raise AssertionError(f"{name} has 200 bytes at most")

        return write_part(folder, name, once)

    monkeypatch.setattr(errno, "ENOSPC", errno.EFBIG)
    monkeypatch.setattr("spreeze_zmq.learner.vault.write_part", write_later)
    return refused


@pytest.mark.parametrize("is_full", [at_its_flush, in_its_middle])
def test_each_file_of_a_checkpoint_is_written_again_where_the_disk_is_full(is_full, tmp_path, monkeypatch):
    """Whoever writes it says why it failed, and what it is of is there still."""
    monkeypatch.setattr(patience, "RETRY_S", 0.0)
    folder, parts = RunFolder.create("run", str(tmp_path / "run")), []
    vault = vault_of(folder, Replay(spec(), options(64)), parts)
    vault.replay.ring.num_added = 40
    refused = is_full(monkeypatch)
    vault._save("one", {}, exact=False)
    assert len(refused) == len(parts[0]) > 2
    complete(folder.checkpoints / "one", map(Part.from_dict, parts[0].values()), {})
    saved = SavedCheckpoint.read(folder.checkpoints / "one")
    assert {name.removeprefix("critic_learner") for name in saved.parts} >= {".pt", "-replay-replay.json"}


def test_files_are_handed_over_as_copies_there(folder, monkeypatch):
    """To the head, from another machine; that of a replay takes minutes, in which the process reports."""
    monkeypatch.setattr("spreeze_zmq.run.outbox.COPIED_BYTES", 3)
    breaths = []
    file = folder.path / "losses" / "critic_learner.jsonl"
    folder.outbox.mkdir()
    file.parent.mkdir(exist_ok=True)
    file.write_text("a loss")
    handing = Handing(folder, "critic_learner-0", lambda message: None, lambda: breaths.append(1))
    handing.give([file])
    (errand,) = errands(folder)
    assert errand.files[file.relative_to(folder.path).as_posix()].read_text() == "a loss"
    assert len(breaths) == 2
