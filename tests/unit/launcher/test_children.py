"""What is heard of the processes that this one starts: how they end, and what they say."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import spreeze_zmq
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
from spreeze_zmq.envs import probing, processes
from spreeze_zmq.launcher.training import launching
from spreeze_zmq.launcher.training.launching import End, launch

CRASHES = "import os\n\ndef pole():\n    os.kill(os.getpid(), 9)\n"


@pytest.fixture
def ignored():
    """SIGCHLD, as some programs and containers have it: the kernel drops how children end."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


def test_a_launcher_that_fails_is_one_where_children_are_ignored(monkeypatch, ignored):
    """Its exit code is known, and the signal is as it was; a thread that cannot see to that says so."""
    monkeypatch.setattr(launching, "LAUNCHER", ("/bin/sh", "-c", "echo no >&2; exit 2"))
    assert launch([], [], show=False) == End(2, "no", 0)
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    with ThreadPoolExecutor(1) as threads:
        refused = threads.submit(launch, [], [], show=False).exception()
    assert isinstance(refused, InputError)
    assert "signal.signal(signal.SIGCHLD, signal.SIG_DFL)" in str(refused)


@pytest.mark.parametrize("forks", [True, False], ids=["fork", "interpreter"])
def test_an_environment_that_crashes_is_named_where_children_are_ignored(
    forks, tmp_path, monkeypatch, ignored
):
    """By the signal that has ended the process that tried it."""
    (tmp_path / "of_a_crash.py").write_text(CRASHES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(probing, "may_fork", lambda: forks)
    with pytest.raises(InvalidEnvironment, match="killed it by SIGKILL"):
        probing.look("of_a_crash:pole")


def test_a_command_hears_its_processes_where_children_are_ignored(tmp_path, ignored):
    """It inherits the signal."""
    (tmp_path / "of_a_crash.py").write_text(CRASHES)
    command = [*launching.LAUNCHER, "--env", "of_a_crash:pole", "--check"]
    words = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **words) as launcher:
        assert "killed it by SIGKILL" in launcher.stderr.read()


@pytest.mark.parametrize("program", ["frozen", "embedding"])
def test_a_program_that_is_no_interpreter_is_not_started_again(program, monkeypatch):
    """It would come to the same line, and start the next one."""
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append("once more"))
    monkeypatch.setattr(sys, "executable", "/opt/app/trainer" if program == "frozen" else "")
    if program == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    for call in (
        lambda: spreeze_zmq.train("Pendulum-v1", progress=False),
        lambda: processes.interpreter("spreeze_zmq.envs.probed", [], ""),
    ):
        with pytest.raises(InputError, match="no interpreter"):
            call()
    assert not started


def test_a_mistake_is_said_without_what_modules_print(tmp_path, monkeypatch):
    """A banner, for instance, which comes before it."""
    (tmp_path / "noisy.py").write_text("import sys\nprint('a banner', file=sys.stderr)\nclass Env: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as raised:
        spreeze_zmq.train("noisy:Env", run_dir=tmp_path / "run", progress=False)
    assert str(raised.value).startswith("noisy:Env: 1 mistake")
    assert not os.path.exists(tmp_path / "run")
