"""The README's first command in a pseudo-terminal: the real broker's status on a real screen."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import psutil
import pyte
import pytest

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.plan.roles import BROKER
from spreeze_zmq.run.checkpoint import latest
from tests.launching import TERMINAL
from tests.system.conftest import LEARNERS_OF, NAPPING, PATIENCE
from tests.system.returning import SEEN, returning_broker

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.begin")
#: Seconds of silence after which a process counts as lost, in the test that suspends the launcher, whose own
#: rest does not count: ``unit/launcher/test_deadlines.py``.
HEARTBEAT_S = 8.0
#: What never comes is given up after this time, however busy the machine is.
DEADLINE_S = 200.0
pytestmark = pytest.mark.timeout(400)
ROLES = ("critic learner", "actor learner", "sampler", "evaluator", "broker")
ONE_LEARNER = tuple(role for role in ROLES if role != "actor learner")


class Terminal:
    """A command in a pseudo-terminal of ``rows`` x ``columns``, and the screen that a person would see.

    Args:
        launcher: forks the launcher with these arguments; without it the command is a new program.

    Attributes:
        screens: every state of the screen at which output paused, as lines without trailing blanks.
        written: everything that the command wrote, escape sequences included.
    """

    def __init__(self, command, *, rows=24, columns=80, launcher=None, **environment):
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.stream = pyte.ByteStream(self.screen)
        self.screens, self.written, self.held = [], b"", None
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", **environment}
        if launcher:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in (environment | {TERMINAL: os.ttyname(slave)}).items():
                    patch.setenv(name, value)
                self.process = launcher(command, os.devnull)
            self.held = slave  # until the launcher has opened it, and says something
        else:
            self.process = subprocess.Popen(
                command,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                env=environment,
            )
            os.close(slave)

    def resize(self, rows, columns):
        """As a person drags the window."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        """As a person types."""
        os.write(self.master, text.encode())

    def until(self, condition, what):
        """Read until a condition of the screen's lines holds; returns them."""
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            if not self._read():
                break
            if self.screens and condition(self.screens[-1]):
                return self.screens[-1]
        raise AssertionError(f"no {what}:\n{self.text()}")

    def run(self):
        """Read until the command ends; returns its exit code."""
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s and self._read():
            pass
        self._keep()
        os.close(self.master)
        return self.process.wait(DEADLINE_S)

    def clear(self):
        """After a failed test nothing goes on."""
        if self.process.poll() is None:
            for process in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    process.kill()
            self.process.wait()

    def _read(self):
        """Feed the screen; False once the last process that held the terminal has left."""
        ready, _, _ = select.select([self.master], [], [], 0.05)
        if not ready:
            self._keep()
            return True
        try:
            chunk = os.read(self.master, 65_536)
        except OSError:
            return False
        if self.held is not None:
            os.close(self.held)
            self.held = None
        self.written += chunk
        self.stream.feed(chunk)
        return True

    def _keep(self):
        lines = [line.rstrip() for line in self.screen.display]
        if not self.screens or self.screens[-1] != lines:
            self.screens.append(lines)

    def scrolled(self):
        """What has scrolled away and the screen, with lines of full width."""
        width = self.screen.columns
        gone = ["".join(line[x].data for x in range(width)) for line in self.screen.history.top]
        return [*gone, *self.screen.display]

    def text(self):
        """All screens below each other."""
        return "\n".join(line for screen in self.screens for line in screen)


def watched(topology, run, *arguments):
    """The arguments of a run that leaves most of the cores to others, however late it gets one."""
    patience = (PATIENCE.format(role) for role in LEARNERS_OF[topology])
    sets = (word for each in (*patience, "components.sampler.count=1") for word in ("--set", each))
    return [topology, "--run-dir", str(run), *sets, *NAPPING[topology], *arguments]


@pytest.fixture
def terminal_of():
    """Terminals that are cleared away."""
    made = []

    def start(command, **about):
        made.append(Terminal(command, **about))
        return made[-1]

    yield start
    for each in made:
        each.clear()


def statuses(run):
    """The statuses in a run's journal so far."""
    return [line for line in read_journal(run / "metrics.jsonl") if line["kind"] == "status"]


def shows(*words):
    """The condition that all of these stand on the screen."""
    return lambda lines: all(any(word in line for line in lines) for word in words)


def frames(lines):
    """How often the first line of the frame is on the screen."""
    return sum(line.startswith("tests.benchmarks.napping:make  sac") for line in lines)


def is_at_work_again_after_its_death(terminal, run, broker):
    """The broker's row waits while it starts again, and then has figures; so has the status that its page
    reads. Returns the screen.
    """
    journal = list(read_journal(run / "metrics.jsonl"))
    [hello] = [line for line in journal if line["kind"] == "hello" and line["role"] == BROKER]
    os.kill(hello["pid"], signal.SIGKILL)
    row = re.compile(r"broker +(\d+% busy|[a-z]+)")
    starts_again = {"importing", "setting", "starts"}
    terminal.until(
        lambda lines: starts_again & set(row.findall("\n".join(lines))), "broker that starts again"
    )
    (broker / SEEN).touch()

    def is_back(lines):
        journal = list(read_journal(run / "metrics.jsonl"))
        since = [*itertools.dropwhile(lambda line: line["kind"] != "exited", journal)]
        statuses = [line for line in since if line["kind"] == "status"]
        known = bool(statuses) and "broker-0" in statuses[-1]["processes"]
        return known and any("busy" in found for found in row.findall("\n".join(lines)))

    return terminal.until(is_back, "broker at work")


@pytest.mark.long("a run is resized, loses its broker and outlives its terminal")
def test_a_run_is_readable_at_every_size_while_it_is_resized_and_outlives_its_terminal(
    keep, tmp_path, terminal_of, servers
):
    """From the first second, through the death of its broker and two changes of size, to the hang-up: it ends
    with a checkpoint.
    """
    run, broker = tmp_path / "run", returning_broker(tmp_path / "broker")
    seen = ("--set", f"components.broker.use={broker}", "--set", "run.stop.minutes=30")
    arguments = watched("pendulum", run, "--set", "run.stop.return=0", *seen)
    terminal = terminal_of(arguments, rows=24, columns=80, launcher=servers.launcher)
    start = terminal.until(shows("importing", "tensorboard --logdir", *ROLES), "processes at the start")
    keep(start, "80x24 at the start")
    assert shows("run folder", "napping:make  sac  seed 1")(start)
    words = ("training", "busy", "critic loss", "actor loss", "│", "left at most", *ROLES)
    training = terminal.until(lambda lines: frames(lines) == 1 and shows(*words)(lines), "training")
    keep(training, "80x24")
    keep(is_at_work_again_after_its_death(terminal, run, broker), "after the broker was killed")
    terminal.resize(50, 160)
    wide = terminal.until(
        lambda lines: (
            frames(lines) == 1  # else the old frame's last lines are still there
            and shows("replay ratio", "policy lag", *ROLES)(lines)
            and any(len(line) > 80 for line in lines)
        ),
        "wide frame",
    )
    keep(wide, "160x50")
    terminal.resize(12, 60)
    figures, whole = shows("evaluation", "best", "in training"), shows(*ROLES)
    low = terminal.until(  # the broker's death has one of the rows, beside other programs a finding, too
        lambda lines: (
            len(lines) == 12
            and frames(lines) == 1
            and (whole(lines) or (figures(lines) and shows("1 failure")(lines)))
        ),
        "low frame",
    )
    keep(low, "60x12")
    os.close(terminal.master)  # the kernel sends SIGHUP
    assert terminal.process.wait(DEADLINE_S) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_reason"] == "interrupted by the end of its terminal"
    assert latest(run / "checkpoints") is not None
    assert b"Traceback" not in terminal.written
    assert b"cannot be shown" not in terminal.written


@pytest.mark.long("a shell starts, suspends and ends a run")
def test_ctrl_z_gives_the_terminal_back_and_fg_returns_to_the_run(keep, tmp_path, terminal_of):
    """A shell's job: its prompt has a cursor, and the run goes on, before ``fg`` and after it."""
    run = tmp_path / "run"
    timeout = f"components.broker.heartbeat_timeout_s={HEARTBEAT_S}"
    command = [*LAUNCH, *watched("cartpole_dqn", run, "--set", "run.stop.return=1000", "--set", timeout)]
    terminal = terminal_of(["bash", "--norc", "-i"], rows=30, columns=100)
    terminal.type(" ".join(command) + "\n")
    terminal.until(shows("critic loss", "busy", *ONE_LEARNER), "training")
    terminal.type("\x1a")
    suspended = terminal.until(shows("suspended: the run goes on", "Stopped"), "prompt of the shell")
    keep(suspended, "suspended")
    assert terminal.written.rfind(b"\x1b[?25h") > terminal.written.rfind(b"\x1b[?25l"), "no cursor"
    before = statuses(run)[-1]
    terminal.until(
        lambda _: statuses(run)[-1]["trained_transitions"] > before["trained_transitions"],
        "training meanwhile",
    )
    terminal.type("clear; fg\n")
    keep(terminal.until(shows("critic loss", "busy", *ONE_LEARNER), "frame"), "after fg")
    num = len(statuses(run))
    terminal.until(lambda _: len(statuses(run)) > num + 4, "more statuses")
    terminal.type("\x03")
    # commands with long paths may have moved the first of the last lines off the screen
    terminal.until(lambda _: any("ended after" in line for line in terminal.scrolled()), "last words")
    terminal.type("exit\n")
    terminal.run()
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["exit_reason"], summary["failures"]) == ("interrupted by the user", [])


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    """``| head -1``: the run goes on without its view, to its end and to its last words."""
    run = tmp_path / "run"
    launch = " ".join((*LAUNCH, "cartpole_dqn", "--run-dir", str(run), "--set run.stop.env_steps=3000"))
    command = f"{launch} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=DEADLINE_S, cwd=tmp_path
    )
    line, code = done.stdout.splitlines()
    assert line.startswith(("note run: CartPole-v1  dqn  seed 1", "note compiling ", "note waiting for "))
    assert code == "0"
    assert "ended after" in done.stderr
    assert "Error" not in done.stderr
    assert json.loads((run / "summary.json").read_text())["env_steps"] >= 3000
