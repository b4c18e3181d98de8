"""``spreeze search`` as a user calls it."""

import contextlib
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.commands import spreeze
from spreeze_zmq.commands.search import trials
from tests.system.conftest import LIGHT, said_in
from tests.unit.supervisor.lives import still_running

ROOT = Path(__file__).parents[2]
SPREEZE = (sys.executable, "-m", "spreeze_zmq.commands.spreeze")
OVER = ("--over", "algorithm.learning_rate=log:1e-4..1e-2", "--over", "algorithm.n_step=1,3")
#: A schedule over a run that follows no clock.
IN_ORDER = (
    *("--set", "balance.mode=lockstep", "--set", "run.stop={ env_steps = 9000 }"),
    *("--set", "algorithm.learning_rate={ from = 1e-3, to = 1e-4 }"),
)
SHORT = ("--env-steps", "1500", "--trials", "1", "--repeats", "1", "--finalists", "1")


@pytest.fixture(autouse=True)
def installed():
    """Optuna is an extra."""
    pytest.importorskip("optuna")


def children_of(search):
    """All processes below a search."""
    return psutil.Process(search.pid).children(recursive=True)


def end(search):
    """End a search and all below it, where they have not ended."""
    if search.poll() is None:
        for process in [*children_of(search), search]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        search.wait()


class Forks:
    """Starts the runs of a search as other launchers of the tests are started, on whatever cores are free."""

    def __init__(self, servers):
        self.servers = servers

    def spawn(self, spec):
        """Fork a launcher."""
        run = self.servers.launcher(spec.command[len(PROGRAM) + 1 :], spec.log_path)
        run.signal = run.send_signal
        return run

    def close(self):
        """Nothing is left to be ended."""


@pytest.fixture
def forks(servers, monkeypatch):
    """A search in the test's own process forks its runs."""
    monkeypatch.setattr(trials, "GroupSpawner", lambda: Forks(servers))


@pytest.mark.long("three whole runs, and one that is interrupted")
@pytest.mark.timeout(600)
def test_a_search_that_is_interrupted_goes_on_and_ends_with_what_is_best(tmp_path, forks, monkeypatch):
    """Ctrl-C in a trial ends it and its processes, and prints the command that goes on: that tries the same
    values again, plays the best trial and the topology as it is with fresh seeds, and says which is better.
    """
    go = tmp_path / "go"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    held = ("run.env=tests.system.holding:pole", f"run.env_kwargs.until={go}", "components.sampler.envs=4")
    settings = [word for each in (*LIGHT, *held) for word in ("--set", each)]
    command = [*SPREEZE, "search", "cartpole_dqn", *OVER, *settings, *SHORT, "--png", "found.png"]
    search = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 200
        while not list(tmp_path.glob("runs/search-*/trial-0000/run.json")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        below = children_of(search)
        search.send_signal(signal.SIGINT)
        out, _ = search.communicate(timeout=60)
    finally:
        end(search)
    assert search.returncode == 0, out
    assert still_running(below, 30) == []
    again = shlex.split(re.search(r"it goes on with: \S*spreeze (.*)", out)[1])
    go.touch()  # until then each trial is slow
    code, out, errors = said_in(tmp_path, *again, main=spreeze.main)
    assert code == 0, out + errors
    assert "trials: 1, 1 at a time, 0 of them before" in out
    assert re.search(r"^as it is +-?[\d,.]+ ", out, re.MULTILINE), out
    ends = ("nothing that was tried is better than cartpole_dqn as it is", "wrote ")
    assert out.splitlines()[-1].startswith(ends)
    assert (tmp_path / "found.png").stat().st_size > 5_000
    found = (tmp_path / "cartpole_dqn_found.toml").exists()
    assert found == out.splitlines()[-1].startswith("wrote ")


def test_trials_that_fail_one_after_the_other_end_a_search_with_what_it_has_found(tmp_path, forks):
    """And with the command that goes on; here there is a file in the place of each one's folder."""
    (tmp_path / "mine").mkdir()
    for number in range(3):
        (tmp_path / "mine" / f"trial-{number:04d}").touch()
    words = ("search", "pendulum", *OVER, "--study", "mine", "--jobs", "1")
    code, out, errors = said_in(tmp_path, *words, main=spreeze.main)
    assert code == 1
    assert "3 trials failed one after the other: " in errors
    assert len(re.findall(r"^[012] .* failed$", out, re.MULTILINE)) == 3, out
    assert re.search(r"^failed; it goes on with: \S*spreeze search .*--study \S+/mine$", out, re.MULTILINE), (
        out
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pendulum",), "nothing is varied"),
        ((*OVER,), "expected a TOPOLOGY or --env ID, got neither"),
        (("pendulum", "--over", "algorithm.tau=0.5..2.0"), "--over algorithm.tau, at 2.0: "),
        (("pendulum", "--over", "algorithm.tou=0.5..1.0"), "tau"),
        (("pendulum", *OVER, "--trials", "0"), "--trials 0: at least 1"),
        (("pendulum", *OVER, "--env-steps", "0"), "--env-steps 0: at least 1"),
        (("pendulum", *OVER, "--minutes", "-1"), "--minutes -1: a time above 0"),
        (
            ("pendulum", *OVER, "--minutes", "2", "--env-steps", "9"),
            "--minutes 2 --env-steps 9: each run ends",
        ),
        (("pendulum", *OVER, "--jobs", "999"), "cores, and each run needs one"),
        (("pendulum", *OVER, "--every"), "is a range"),
        (("pendulum", *OVER[2:], "--every", "--trials", "3"), "leave one of them out"),
        (("pendulum", *OVER, "--png", "found.v2"), "no kind of picture is called v2"),
        (
            ("pendulum", *OVER[2:], *IN_ORDER),
            "--minutes, by which every run ends: --set algorithm.learning_rate: ",
        ),
        (("pendulun", *OVER), "pendulum"),
    ],
)
def test_mistakes_of_a_search_start_nothing(tmp_path, arguments, words):
    """One clear line, exit code 2, and no folder."""
    code, out, errors = said_in(tmp_path, "search", *arguments, main=spreeze.main)
    assert (code, out) == (2, "")
    assert words in errors
    assert not any(tmp_path.iterdir())
