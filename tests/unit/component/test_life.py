"""The end of a component's process: environments are closed last, and cannot keep it."""

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.base import patience
from spreeze_zmq.base.errors import ChannelError, CheckpointError, EnvironmentFailure
from spreeze_zmq.component import life
from spreeze_zmq.component.process import claim_name
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder, write_plan


def ending(*closers, leave=lambda code: None, code=0):
    """End a component whose environments are closed by these."""
    life._close_environments(SimpleNamespace(at_end=list(closers)), leave, code)


def test_a_close_that_raises_keeps_no_other_from_being_closed(caplog):
    """Nor does one that ends the program."""
    closed = []

    def bad():
        raise SystemExit("no server")

    with caplog.at_level(logging.WARNING):
        ending(bad, lambda: closed.append(1))
    assert closed == [1]
    assert "close() raised SystemExit: no server [" in caplog.text


@pytest.mark.parametrize("code", [0, 1])
def test_a_close_that_hangs_is_left(monkeypatch, caplog, code):
    """The process leaves with its code; after a failure, whose line is the last, without a word."""
    monkeypatch.setattr(life, "CLOSE_S", 0.05)
    left, codes = threading.Event(), []

    def leave(code):
        codes.append(code)
        left.set()

    with caplog.at_level(logging.WARNING):
        ending(lambda: left.wait(30), leave=leave, code=code)
    assert codes == [code]
    assert ("has not returned after 0 s: it is left" in caplog.text) == (code == 0)


def test_a_component_may_open_as_many_files_as_its_hard_limit_allows():
    """A shell's soft limit of 1,024 is too few for a broker of five hundred samplers."""
    script = """
import resource
hard = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
from spreeze_zmq.component.life import live
assert live("broker", None, ["/no/run.json"], None) == 2
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
files = [open("/dev/null") for _ in range(hard - 100)]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run(tmp_path):
    """The folder of a run whose broker is not there."""
    plan, sockets = write_plan(topology.load("pendulum"), RunFolder.create("run", str(tmp_path / "run")))
    yield RunFolder(Path(plan.run_dir))
    sockets.remove()


def code_after(run, problem, cause, *closers):
    """The exit code of a sampler whose work ends with an error to which another one led."""

    def main(component):
        component.at_end.extend(closers)
        raise problem from cause

    return life.live("sampler", main, [str(run.path), "0"], lambda component: None)


def full(*path):
    """What a write to a full disk raises."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *map(str, path))


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (EnvironmentFailure("Reach-v0 raised in reset"), full("/tmp/scene.xml")),
        (EnvironmentFailure("Reach-v0 raised in reset"), full()),
        (full("/run/user/1000/policy.version"), None),
        (full(), None),
    ],
)
def test_another_full_disk_is_not_the_runs(problem, cause, run, caplog, capsys):
    """The error is kept, with the file that it names, and the process may be started again."""
    assert code_after(run, problem, cause) == 1
    assert str(cause or problem) in caplog.text
    assert "--run-dir" not in caplog.text + capsys.readouterr().err


@pytest.mark.parametrize("problem", [EnvironmentFailure("Reach-v0 raised in step"), ValueError("odd")])
def test_environments_are_closed_after_a_failure_too(problem, run, capsys):
    """A simulator that runs beside the process would stay, or a licence or a robot be held."""
    closed = []

    def bad():
        closed.append("bad")
        raise OSError("no server")

    assert code_after(run, problem, None, bad, lambda: closed.append("good")) == 1
    assert closed == ["bad", "good"]
    assert "no server" not in capsys.readouterr().err


@pytest.mark.parametrize(("elsewhere", "mend"), [(False, "--run-dir"), (True, "XDG_RUNTIME_DIR")])
def test_that_of_the_runs_folder_is_one_line(elsewhere, mend, run, caplog, capsys):
    """By the file that was written; on a machine that has joined another setting chooses its place."""
    if elsewhere:
        run.outbox.mkdir()
    problem = CheckpointError("critic_learner.pt cannot be written")
    assert code_after(run, problem, full(run.checkpoints / "0001" / "critic_learner.pt")) == 2
    line = f"sampler: {run.path}: its disk is full; make room there, or choose a folder on another disk with "
    assert capsys.readouterr().err.splitlines()[-1].startswith(line + mend)
    assert "Traceback" not in caplog.text


def test_where_no_name_can_be_locked_no_further_one_is_tried(run, monkeypatch):
    """By who joins by hand, without a number: each would be waited for, and there is no last one."""
    tries = [full()]

    def pwrite(*_):
        if not tries:
            pytest.fail("a further name is tried")
        raise tries.pop()

    plan = Plan.read(run.run_file)
    with monkeypatch.context() as patched:
        patched.setattr(patience, "PATIENCE_S", 0.0)
        patched.setattr(os, "pwrite", pwrite)
        with pytest.raises(ChannelError, match="cannot be locked: No space left"):
            claim_name("sampler", None, plan, 7)


def test_a_word_that_names_no_level_ends_a_process_in_one_line(monkeypatch, capsys):
    """It would be there at each start, so that the exit code says that none helps."""
    monkeypatch.setenv("SPREEZE_LOG", "loud")
    monkeypatch.setattr(life, "_leave", sys.exit)
    with pytest.raises(SystemExit) as ended:
        life.run("sampler", None)
    assert ended.value.code == 2
    expected = "sampler: SPREEZE_LOG=loud: expected DEBUG, INFO, WARNING, ERROR or CRITICAL\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(("word", "level"), [("debug", 10), ("DEBUG", 10), ("Warning", 30), ("", 20)])
def test_the_level_of_a_log_is_as_the_user_names_it(word, level, monkeypatch):
    """INFO where nothing is named."""
    heard = []
    monkeypatch.setenv("SPREEZE_LOG", word)
    monkeypatch.setattr(logging, "basicConfig", lambda **named: heard.append(named["level"]))
    life.log_to(sys.stderr)
    assert heard == [level]
