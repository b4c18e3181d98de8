"""A run's folder may be on a disk that has no links, as exFAT and some network shares: all goes on there."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.component.handing import Handing
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import Replay
from spreeze_zmq.run.checkpoint import SavedCheckpoint
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


def test_a_replay_is_restored_there(folder):
    """Its files have other names in a checkpoint than the replay gives them."""
    component = SimpleNamespace(
        plan=topology.load("pendulum", ["run.save_replay=true"]),
        role="critic_learner",
        folder=folder,
        on=lambda *_: None,
        report=lambda kind, fields, files: None,
        send_report=lambda: None,
        count_step=lambda: None,
    )
    replays = [Replay(spec(), options(64)) for _ in range(2)]
    before, after = (Vault(component, dict, replay, lambda: True) for replay in replays)
    before.replay.ring.num_added = 40
    before._save("one", {}, exact=False)
    place = folder.checkpoints / "one"
    after._restore_replay(SavedCheckpoint(place, {}, dict.fromkeys(os.listdir(place))))
    assert len(after.replay) == 40


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
