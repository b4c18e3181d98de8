"""Texts of the launcher for its user: real sockets' folders, real plans."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base.parent_death import is_within
from spreeze_zmq.launcher.texts import AS_STATED, Stages, facts, first_count
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire.channels import Claim, SocketFolder


@pytest.fixture
def sockets():
    """A run's folder of sockets."""
    folder = SocketFolder.create("texts")
    yield folder
    folder.remove()


def test_a_process_is_followed_from_its_start_to_its_work(sockets):
    """It imports until it takes its name, and sets itself up until the broker hears of it."""
    stages, pid = Stages(sockets), os.getpid()
    names = ["broker-0", "sampler-0"]
    pids = {"broker-0": 1, "sampler-0": pid}
    assert stages.of(names, pids, {})["sampler-0"] == "importing"
    claim = Claim.take(sockets.path / "sampler-0")
    assert stages.of(names, pids, {})["sampler-0"] == "setting up"
    owed = "a policy from actor_learner (ipc:///tmp/run/policy)"
    heard = {"sampler-0": {"pid": pid, "ready": True, "waiting_for": owed}}
    assert stages.of(names, pids, heard)["sampler-0"] == "waits for a policy from actor_learner"
    heard["sampler-0"]["waiting_for"] = ""
    assert stages.of(names, pids, heard)["sampler-0"] == "running"
    claim.release()


def test_a_program_that_a_script_starts_is_the_scripts(sockets):
    """As of ``npx`` or a shell without ``exec``: the program says hello, and the launcher has the script."""
    script = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    program, stages = int(script.stdout.readline()), Stages(sockets)
    names, pids = ["sampler-0"], {"sampler-0": script.pid}
    (sockets.path / "sampler-0.lock").write_text(f"{program} 7")
    assert stages.of(names, pids, {"broker-0": {}})["sampler-0"] == "setting up"
    heard = {"sampler-0": {"pid": program, "ready": True, "waiting_for": ""}}
    assert stages.of(names, pids, heard)["sampler-0"] == "running"
    assert not is_within(os.getpid(), script.pid)
    os.killpg(script.pid, signal.SIGKILL)
    script.communicate()


def test_a_session_from_outside_a_container_is_nobodys(monkeypatch):
    """The kernel says 0 of it, which is also the process id of one whose id is not known."""
    monkeypatch.setattr(os, "getsid", lambda pid: 0)
    assert not is_within(os.getpid(), 0)
    assert is_within(os.getpid(), os.getpid())


def test_a_restarted_process_is_shown_as_starting_again(sockets):
    """Neither its predecessor's lock nor what the broker still says of that one counts for it."""
    stages = Stages(sockets)
    claim = Claim.take(sockets.path / "sampler-0")
    heard = {"sampler-0": {"pid": os.getpid(), "ready": True, "waiting_for": ""}}
    assert stages.of(["sampler-0"], {}, heard) == {"sampler-0": "starts again soon"}
    assert stages.of(["sampler-0"], {"sampler-0": os.getpid() + 1}, heard) == {"sampler-0": "importing"}
    claim.release()


def test_without_a_broker_everybody_waits_for_one(sockets):
    """``--without broker``: nothing more is known until somebody starts it."""
    claim = Claim.take(sockets.path / "sampler-0")
    found = Stages(sockets).of(["sampler-0"], {"sampler-0": os.getpid()}, {})
    assert found == {"sampler-0": "waits for a broker"}
    claim.release()


def test_the_facts_of_a_run_are_as_its_user_types_them(tmp_path, monkeypatch):
    """Paths from the current directory, quoted for the shell; a page only where there is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin")
    plan, folder = topology.load("pendulum"), RunFolder(tmp_path / "my runs" / "a")
    assert facts(plan, folder, "") == {
        "run": "Pendulum-v1  sac  seed 1",
        "run folder": "my runs/a",
        "curves": "tensorboard --logdir 'my runs/a'",
    }
    resumed = plan.resuming(tmp_path / "b")
    titles = list(facts(resumed, RunFolder(tmp_path.parent / "a"), "http://127.0.0.1:1/x/"))
    assert titles == ["run", "run folder", "goes on from", "page", "curves"]
    assert facts(plan, RunFolder(tmp_path.parent / "a"), "")["run folder"] == str(tmp_path.parent / "a")


def test_the_first_count_is_worth_a_note_only_where_it_was_chosen():
    """Not where the topology says it."""
    plan = topology.load("pendulum", cores=2)
    line = first_count(plan, "by a rule from the number of cores")
    assert "cores: 1 sampler at first, by a rule from the number of cores (1 to" in line
    assert first_count(plan, AS_STATED) == ""
