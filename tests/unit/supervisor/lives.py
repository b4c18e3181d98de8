"""Processes to be supervised: fake ones over time, real ones of a line of code; and waiting for them."""

import sys
import time
from dataclasses import replace

import psutil

DEADLINE_S = 10.0


class FakeProcess:
    """Lives until the test ends it; remembers its signals."""

    pid = 1
    log_start = 0
    has_printed = False

    def __init__(self):
        self.code = None
        self.signals = []

    def poll(self):
        """The exit code that the test has set."""
        return self.code

    def signal(self, number):
        """Remember it."""
        self.signals.append(number)


class FakeSpawner:
    """Spawns processes that the test ends."""

    def __init__(self):
        self.lives = []
        self.error = None

    def spawn(self, spec):
        """One more life."""
        if self.error:
            raise self.error
        self.lives.append(FakeProcess())
        return self.lives[-1]

    def attend(self):
        """Nothing to do."""

    def close(self):
        """Nothing to do."""


class FakeClock:
    """Time that the test moves."""

    now_s = 100.0

    def __call__(self):
        """The time now."""
        return self.now_s


def python(spec, code, **changes):
    """``spec`` running a line of Python."""
    return replace(spec, command=(sys.executable, "-S", "-c", code), **changes)


def shell(spec, script, **changes):
    """``spec`` running a line of shell."""
    return replace(spec, command=("/bin/sh", "-c", script), **changes)


def until(condition, what, wait_s=DEADLINE_S):
    """Wait until ``condition()`` is true and return its value."""
    deadline_s = time.monotonic() + wait_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"waited {wait_s} s for {what}"
        time.sleep(0.01)
    return value


def events_until(supervisor, kind):
    """Poll until an event of this kind; returns all events."""
    events = []

    def seen():
        events.extend(supervisor.poll())
        return any(isinstance(event, kind) for event in events)

    until(seen, kind.__name__)
    return events


def gone(pid):
    """Whether a process has ended; one that nobody has reaped yet has."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between the two calls
        return True


def still_running(processes, wait_s):
    """Those of ``processes`` that still run after up to ``wait_s``, whoever reaps the others, and when: the
    first process of a container may never do so.
    """
    deadline_s = time.monotonic() + wait_s
    while (left := [each for each in processes if not gone(each.pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return left


def words_of(process):
    """The command line of a process; no words once it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def numbers_in(path, count, wait_s=DEADLINE_S):
    """The process ids that a script has written, once there are ``count``."""

    def read():
        numbers = path.read_text().split() if path.exists() else []
        return [int(number) for number in numbers] if len(numbers) >= count else None

    return until(read, f"{count} numbers in {path}", wait_s)
