"""The README's first command in a pseudo-terminal: the real broker's status on a real screen."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte
import pytest

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.launch")


class Terminal:
    """A command in a pseudo-terminal of ``rows`` x ``columns``, and the screen that a person would see.

    Attributes:
        screens: every state of the screen at which output paused, as lines without trailing blanks.
        written: everything that the command wrote, escape sequences included.
    """

    def __init__(self, command, *, rows=24, columns=80, **environment):
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.stream = pyte.ByteStream(self.screen)
        self.screens, self.written = [], b""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)

    def run(self, deadline_s):
        """Read until the command ends; returns its exit code."""
        until_s = time.monotonic() + deadline_s
        while time.monotonic() < until_s:
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if not ready:
                self._keep()
                continue
            try:
                chunk = os.read(self.master, 65_536)
            except OSError:  # the last process that held the terminal has left
                break
            self.written += chunk
            self.stream.feed(chunk)
        self._keep()
        os.close(self.master)
        return self.process.wait(5)

    def _keep(self):
        lines = [line.rstrip() for line in self.screen.display]
        if not self.screens or self.screens[-1] != lines:
            self.screens.append(lines)

    def text(self):
        """All screens below each other."""
        return "\n".join(line for screen in self.screens for line in screen)


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_readmes_first_command_shows_a_live_run_and_ends_well(columns, tmp_path):
    """In a terminal of any usual width: every process appears, the figures move, the goal is named."""
    command = [*LAUNCH, "pendulum", "--run-dir", str(tmp_path / "run"), "--set", "run.stop.minutes=1"]
    terminal = Terminal(command, columns=columns)
    code = terminal.run(deadline_s=100)
    text = terminal.text()
    assert code == 0, terminal.written.decode()
    assert "Traceback" not in text
    assert "training" in text
    for role in ("sampler", "critic learner", "actor learner", "evaluator", "broker"):
        assert role in text, role
    assert "run folder:" in text
