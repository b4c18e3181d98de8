"""Whole runs: the launcher and all of its processes, as a user starts them."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.commands import launch as launching
from spreeze_zmq.launcher import warm
from tests.forked import COMPONENTS
from tests.system.joining import Machine

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.begin")
#: Learners import torch, for which the 30 s of a start are too short where several runs share a busy core.
PATIENCE = "components.{}.start_timeout_s=120"
#: Updates that cost little.
LIGHT = ("algorithm.hidden_sizes=[16]", "algorithm.batch_size=32", "balance.replay_ratio=4")
#: Environments whose steps sleep, too, for 125 updates a second: a run that is looked at, hit or stopped
#: leaves most of the cores to others.
NAPPING = {
    topology: tuple(
        word for each in (f"run.env=tests.benchmarks.napping:{make}", *LIGHT) for word in ("--set", each)
    )
    for topology, make in (("pendulum", "make"), ("cartpole_dqn", "cartpole"))
}
#: A pendulum whose steps sleep, and which learns to swing up.
SWINGS_UP = (
    *("--set", "run.env=tests.benchmarks.napping:make", "--set", "balance.replay_ratio=16"),
    *("--set", "algorithm.hidden_sizes=[64, 64]", "--set", "algorithm.batch_size=64"),
    *("--set", "algorithm.learning_rate=3e-3", "--set", "algorithm.tau=0.02"),
)
#: The learners of shipped topologies.
LEARNERS_OF = dict.fromkeys(("pendulum", "halfcheetah", "cartpole"), ("critic_learner", "actor_learner"))
LEARNERS_OF |= dict.fromkeys(("cartpole_dqn", "cartpole_pqn"), ("critic_learner",))
#: Of a topology of a test's own: a policy class of the user's has the sampler import torch too.
IMPORTING = ("critic_learner", "sampler")
#: The counter of each learner in summary.json.
UPDATES = {"critic_learner": "critic_updates", "actor_learner": "actor_updates"}


def said_in(place, *arguments, main=launching.main):
    """The exit code of a command's ``main`` in a folder, and what it printed to standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as stop:
            code = stop.code
    return code, out.getvalue(), err.getvalue()


class Left:
    """What a run leaves in its folder, and its processes, whoever launched it."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def processes(self):
        """Name -> process, of everything that was started with this run's file. What a process forks has its
        command until it has begun its own: of two the older one is meant.
        """
        found = {}
        all_of_them = psutil.process_iter(["cmdline", "create_time"])
        for process in sorted(all_of_them, key=lambda process: process.info["create_time"] or 0.0):
            command = process.info["cmdline"] or []
            if str(self.folder / "run.json") in command:
                found.setdefault(f"{Path(command[1]).name}-{command[-1]}", process)
        return found

    def pid(self, name):
        """The process id of one process; None where it does not live."""
        process = self.processes().get(name)
        return process and process.pid

    def summary(self):
        """summary.json as it stands."""
        path = self.folder / "summary.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def updates(self):
        """Updates of the learner that has made fewest."""
        summary = self.summary()
        return min((summary[UPDATES[role]] for role in summary.get("learners", ())), default=0)

    def plan(self):
        """run.json."""
        return json.loads((self.folder / "run.json").read_text())

    def leftovers(self, deadline_s=60):
        """Processes and socket folders that outlive the run by the deadline."""
        until_s = time.monotonic() + deadline_s
        while True:
            left = [f"{name} (pid {process.pid})" for name, process in self.processes().items()]
            sockets = Path(self.plan()["socket_dir"])
            left += [str(path) for path in (sockets, *sockets.glob("*")) if path.exists()]
            if not left or time.monotonic() > until_s:
                return left
            time.sleep(0.05)


def by_command(arguments, output):
    """The process of a launcher that is started by its command, as a user starts it."""
    with output.open("w") as file:
        command = [*LAUNCH, *arguments]
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)


class Run(Left):
    """One launched run.

    Attributes:
        begin: starts the launcher with arguments and a file for its output.
    """

    begin = staticmethod(by_command)

    def __init__(self, folder, *arguments, topology="pendulum"):
        super().__init__(folder)
        self.output = self.folder.with_suffix(".out")
        late = LEARNERS_OF.get(topology, IMPORTING)
        patience = [PATIENCE.format(role) for role in late if role not in arguments]
        arguments = [*(word for each in patience for word in ("--set", each)), *arguments]
        self.launcher = self.begin([topology, "--run-dir", str(self.folder), *arguments], self.output)

    def until(self, condition, what, deadline_s=60):
        """Wait for a condition of the run; one that has ended, or the deadline, fails with what was said."""
        until_s = time.monotonic() + deadline_s
        while time.monotonic() < until_s:
            has_ended = self.launcher.poll() is not None  # asked first: it may end with what is waited for
            if value := condition():
                return value
            assert not has_ended, f"ended while waiting for {what}:\n{self.said()}"
            time.sleep(0.05)
        raise AssertionError(f"no {what} in {deadline_s} s:\n{self.said()}")

    def until_training(self, updates=50):
        """Wait until every learner has trained, which first starts: ``PATIENCE``, and a minute."""
        self.until(lambda: self.updates() >= updates, f"{updates} updates of every learner", 180)

    def kill(self, name):
        """SIGKILL one process of the run; returns its process id."""
        victim = self.processes()[name]
        victim.kill()
        return victim.pid

    def interrupt(self):
        """Ctrl-C."""
        self.launcher.send_signal(signal.SIGINT)

    def end(self, deadline_s=100):
        """Wait for the end; returns the exit code."""
        try:
            return self.launcher.wait(deadline_s)
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            raise AssertionError(f"still running after {deadline_s} s:\n{self.said()}") from None

    def said(self):
        """Everything that the launcher and its processes wrote."""
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join([self.output.read_text(), *(f"--- {log.name}\n{log.read_text()}" for log in logs)])

    def clear(self):
        """After a failed test too, nothing stays; nobody is hit who has the number of one that has ended."""
        for process in [self.launcher, *self.processes().values()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.launcher.wait()


@pytest.fixture(scope="session", autouse=True)
def forked_launchers(servers):
    """Launchers are forked, see ``tests/launching.py``, but for those of tests that are ``as_typed``."""
    Run.begin = staticmethod(servers.launcher)
    yield
    Run.begin = staticmethod(by_command)


@pytest.fixture
def served(servers, monkeypatch):
    """A run whose launcher is the test's own process has its components forked, too."""
    monkeypatch.setattr(warm, "_servers", servers.components)


@pytest.fixture
def as_typed(monkeypatch):
    """A test's launchers are started by their commands."""
    monkeypatch.setattr(Run, "begin", staticmethod(by_command))


@pytest.fixture
def component(servers, tmp_path):
    """Starts a shipped component with these arguments, as somebody does who types that; ends those that are
    left.
    """
    lives = []

    def start(role, *arguments):
        command = [sys.executable, COMPONENTS / role, *arguments]
        lives.append(servers.life(role, command, tmp_path / f"{role}.log", tmp_path / "no.lock"))
        return lives[-1]

    yield start
    for life in lives:
        if not life.ended:
            life.process.kill()
            life.process.wait()


@pytest.fixture
def launch(tmp_path):
    """Starts runs and clears them away."""
    runs = []

    def start(*arguments, **options):
        runs.append(Run(tmp_path / f"run{len(runs)}", *arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.clear()


@pytest.fixture
def join(tmp_path):
    """Has machines join a run, and ends them."""
    made = []

    def start(run, *more, **about):
        made.append(Machine(run, tmp_path / f"machine{len(made)}", *more, **about))
        return made[-1]

    yield start
    for one in made:
        one.half.kill()
        one.half.wait()


@pytest.fixture
def keep(tmp_path):
    """Keeps a screen as output of the test, beside its folder and in what it prints."""

    def keep_screen(lines, name):
        text = "\n".join(f"|{line}" for line in lines)
        (tmp_path / f"{name}.txt").write_text(text + "\n")
        print(f"--- {name}\n{text}")

    return keep_screen


#: Groups need a core each.
two_cores = pytest.mark.skipif(available_cores() < 2, reason="there is one core")


def thorough_but(*kept, of):
    """Parameters of a test: those kept for every run of the suite, the others marked ``thorough``."""
    several = [case if isinstance(case, tuple) else (case,) for case in of]
    return [
        pytest.param(*case, marks=[] if whole in kept else [pytest.mark.thorough])
        for case, whole in zip(several, of, strict=True)
    ]


def reached(summary, mean_return):
    """Whether a run ended at its return, which its exit reason states as it was confirmed; the final score,
    of further fresh episodes, may be a little lower.
    """
    word, confirmed, *_ = summary["exit_reason"].split()
    return word == "return" and float(confirmed) >= mean_return


#: The share of fresh episodes that succeed, at least, of a policy whose run ended at a share of 0.9: those
#: that confirmed it may have been kind. One that has learned nothing is at 0.
BORNE_OUT = 0.7


def adds_up(samples):
    """The account of samples."""
    return samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A short run of Pendulum to -300, shared: nobody may change its folder."""
    import spreeze_zmq

    return spreeze_zmq.train(
        "Pendulum-v1",
        algorithm="sac",
        seed=1,
        stop={"return": -300, "minutes": 10.0},
        options={"hidden_sizes": [64, 64], "learning_rate": 3e-3, "tau": 0.02},
        balance={"replay_ratio": 32.0},
        components={"sampler": {"count": 1}, "evaluator": {"videos": [200_000_000, 1]}},
        run_dir=tmp_path_factory.mktemp("trained") / "run",
    )
