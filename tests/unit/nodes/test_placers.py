"""Commands that have machines join, as real processes: which machine is absent, and what its command says."""

import errno
import os
import time

import pytest

from spreeze_zmq.base.errors import DiskFull
from spreeze_zmq.nodes.placers import Placer, Way
from spreeze_zmq.supervisor import supervision

DEADLINE_S = 20.0


@pytest.fixture
def placed(tmp_path):
    """Starts one command of a machine, given as a line of the shell, and ends it."""
    (tmp_path / "join.key").touch()
    made = []

    def start(script, until, prefix=""):
        log = tmp_path / "ssh-desk2.log"
        placer = Placer([Way("ssh desk2", ("sh", "-c", script), prefix)], "", tmp_path / "join.key", tmp_path)
        made.append(placer)
        until_s = time.monotonic() + DEADLINE_S
        while f"\n{until}" not in "\n".join(["", *placer.poll(), log.read_text() if log.exists() else ""]):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        return placer

    yield start
    for placer in made:
        placer.close()


def test_a_machine_is_absent_unless_its_newest_name_is_lent(placed):
    """As its spreeze join says it; one that has been part of the run has failed."""
    script = "echo 'joined a as node-1 with 4 cores'; echo 'the head has been silent for 10 s'; {}; sleep 60"
    placer = placed(
        script.format("echo 'joined a as node-3 with 4 cores, at most 1 samplers'"), "joined a as node-3"
    )
    assert placer.absent({"node-2", "node-3"}) == []
    [absent] = placer.absent({"node-1", "node-2"})
    assert (absent.way, absent.node, absent.has_failed) == ("ssh desk2", "node-3", True)


def test_a_command_that_fails_says_so_and_one_that_is_on_its_way_has_not_failed(placed):
    """With its last line, and the log that has more."""
    [late] = placed("echo; sleep 60", "").absent(())
    assert (late.node, late.has_failed) == ("", False)
    assert late.why.startswith("it has not joined yet (")
    placer = placed(
        "echo 'ssh: connect to host desk2 port 22: Connection refused'; exit 2",
        "ssh desk2 is not started again",
    )
    [absent] = placer.absent({"node-1"})
    assert (absent.node, absent.has_failed) == ("", True)
    assert absent.why.startswith("ssh: connect to host desk2 port 22: Connection refused (")
    assert "ssh-desk2.log" in absent.why


def test_a_command_whose_log_has_no_room_has_failed(placed, tmp_path, monkeypatch):
    """It never begins, and the log that would say why is not there."""
    log, open_file = tmp_path / "ssh-desk2.log", os.open

    def full(path, *how):
        if path == log:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open_file(path, *how)

    monkeypatch.setattr(os, "open", full)
    monkeypatch.setattr(supervision, "PATIENCE_S", 0.0)
    placer = placed("echo 'joined a as node-1 with 4 cores'", "ssh desk2 cannot be started: ")
    [absent] = placer.absent(())
    assert (absent.node, absent.why, absent.has_failed) == ("", str(DiskFull(tmp_path.parent)), True)
    assert not log.exists()


def test_a_machine_that_was_taken_back_is_not_absent(placed):
    """Its spreeze join has ended with exit code 0."""
    placer = placed("echo 'joined a as node-1 with 4 cores'; echo 'left the run: SIGINT'", "ssh desk2: left")
    assert placer.absent(()) == []


def test_a_placer_of_several_machines_is_absent_when_it_is_given_up(placed):
    """As Ray's, whose machines join and leave."""
    assert placed("echo 'ray: waits'; sleep 60", "ray: waits", "ray: ").absent(()) == []
    [absent] = placed("echo no ray; exit 2", "ssh desk2 is not started again", "ray: ").absent(())
    assert absent.why.startswith("no ray (")
