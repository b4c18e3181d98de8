"""Processes are stopped within their grace, and none is left behind, however the launcher ends."""

import math
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest

from spreeze_zmq.base import guard
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.supervisor import Exited, GaveUp, Supervisor, Unwanted
from tests.unit.supervisor.lives import DEADLINE_S, events_until, gone, numbers_in, python, shell, until


def test_a_polite_process_stops_on_sigterm_and_is_not_restarted(supervisor, spec):
    """An exit that was asked for is expected."""
    supervisor.start(spec)
    supervisor.stop([spec.name])
    [exited] = events_until(supervisor, Exited)
    assert (exited.signal, exited.expected, exited.restarting) == (signal.SIGTERM, True, False)
    assert supervisor.names() == []


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(supervisor, spec):
    """And not before."""
    supervisor.start(
        shell(spec, "trap '' TERM; echo deaf >&2; while :; do sleep 0.01; done", stop_grace_s=0.3)
    )
    until(lambda: "deaf\n" in spec.log_path.read_text().splitlines(keepends=True), "the trap")
    began_s = time.monotonic()
    supervisor.stop([spec.name])
    [exited] = events_until(supervisor, Exited)
    assert exited.signal == signal.SIGKILL
    assert exited.expected
    assert exited.overdue
    assert time.monotonic() - began_s >= 0.3


def test_a_process_that_is_killed_within_its_grace_is_not_overdue(fake, spec):
    """As a second Ctrl-C does it."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    supervisor.stop([spec.name])
    clock.now_s += spec.stop_grace_s / 2
    supervisor.kill(spec.name)
    spawner.lives[0].code = -signal.SIGKILL
    [exited] = supervisor.poll()
    assert (exited.signal, exited.expected, exited.overdue) == (signal.SIGKILL, True, False)


def test_stopping_twice_does_not_lengthen_the_grace(fake, spec):
    """The first request counts."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    supervisor.stop([spec.name])
    clock.now_s += spec.stop_grace_s - 0.1
    supervisor.stop([spec.name])
    supervisor.poll()
    assert spawner.lives[0].signals == [signal.SIGTERM]
    clock.now_s += 0.2
    supervisor.poll()
    supervisor.poll()
    assert spawner.lives[0].signals == [signal.SIGTERM, signal.SIGKILL]


def test_who_may_take_long_is_hurried_by_a_signal_to_the_launcher(fake, spec):
    """Callbacks have 8 s then, unless their grace is shorter; others as long as ever."""
    supervisor, spawner, clock = fake
    interrupts = Interrupts()
    assert interrupts.grace_s(["observer"]) == math.inf
    interrupts.count = 1
    assert interrupts.grace_s(["evaluator"]) == math.inf
    for grace_s, has_s in ((40.0, 8.0), (3.0, 3.0)):
        supervisor.start(replace(spec, name=f"observer-{grace_s:.0f}", stop_grace_s=grace_s))
        supervisor.stop(supervisor.names()[-1:], interrupts.grace_s(["observer"]))
        for later_s, signals in ((has_s - 0.1, []), (0.2, [signal.SIGKILL])):
            clock.now_s += later_s
            supervisor.poll()
            assert spawner.lives[-1].signals == [signal.SIGTERM, *signals]


def test_a_pause_of_all_is_not_within_the_grace(fake, spec):
    """As of a laptop that sleeps while the last policy is evaluated: that would be killed as it wakes up."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    supervisor.stop([spec.name])
    clock.now_s += 3600.0
    supervisor.postpone(3600.0)
    supervisor.poll()
    assert spawner.lives[0].signals == [signal.SIGTERM]
    clock.now_s += spec.stop_grace_s
    supervisor.poll()
    clock.now_s += 3600.0
    supervisor.postpone(3600.0)
    assert supervisor.poll() == []  # nor does it hang in the kernel
    assert spawner.lives[0].signals == [signal.SIGTERM, signal.SIGKILL]


def test_grandchildren_die_with_the_process_that_is_stopped(supervisor, spec, tmp_path):
    """Signals go to the group, and members that outlive their leader are killed."""
    pids = tmp_path / "pids"
    deaf = "trap '' TERM; sleep 60"
    supervisor.start(shell(spec, f"sh -c {shlex.quote(deaf)} & echo $! > {pids}; wait"))
    [grandchild] = numbers_in(pids, 1)
    supervisor.stop([spec.name])
    events_until(supervisor, Exited)
    until(lambda: gone(grandchild), "the grandchild's end")


def test_grandchildren_die_with_the_process_that_crashes(supervisor, spec, tmp_path):
    """kill -9 of a component leaves none of its workers."""
    pids = tmp_path / "pids"
    supervisor.start(shell(spec, f"sleep 60 & echo $! > {pids}; wait", max_restarts=0))
    [grandchild] = numbers_in(pids, 1)
    os.kill(supervisor.pids()[spec.name], signal.SIGKILL)
    events_until(supervisor, GaveUp)
    until(lambda: gone(grandchild), "the grandchild's end")


def test_stop_of_a_process_that_waits_for_its_restart_cancels_it(fake, spec):
    """Nothing is started once it is not wanted."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    spawner.lives[0].code = 1
    supervisor.poll()
    supervisor.stop([spec.name])
    clock.now_s += 60
    assert supervisor.poll() == [Unwanted(spec.name)]
    assert supervisor.poll() == []
    assert len(spawner.lives) == 1


def test_a_process_that_no_signal_ends_is_not_waited_for(fake, spec):
    """One that hangs in a driver must not hang the launcher."""
    supervisor, _, clock = fake
    supervisor.start(spec)
    supervisor.stop([spec.name])
    clock.now_s += spec.stop_grace_s
    supervisor.poll()
    clock.now_s += 10.0
    [exited] = supervisor.poll()
    assert "hangs in the kernel" in str(exited)
    assert supervisor.names() == []


def test_when_the_run_ends_crashes_are_reported_and_not_mended(fake, spec):
    """A learner that dies while samplers are stopped stays down."""
    supervisor, spawner, _ = fake
    supervisor.start(spec)
    supervisor.start(replace(spec, name="sampler-1"))
    spawner.lives[1].code = 1
    supervisor.poll()
    supervisor.end_restarts()
    spawner.lives[0].code = 1
    [exited] = supervisor.poll()
    assert (exited.expected, exited.restarting) == (False, False)
    assert supervisor.names() == []


@pytest.mark.parametrize(("code", "is_back"), [(-9, True), (1, True), (0, False), (-15, False)])
def test_who_is_needed_until_the_end_comes_back_unless_somebody_stopped_it(fake, spec, code, is_back):
    """As the broker, without which there is no last checkpoint; a service manager stops all processes."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    supervisor.end_restarts(needed=[spec.name])
    spawner.lives[0].code = code
    [exited] = supervisor.poll()
    assert exited.restarting is is_back
    clock.now_s += 1.0
    supervisor.poll()
    assert len(spawner.lives) == 1 + is_back
    assert supervisor.alive([spec.name]) == [spec.name] * is_back


def test_who_is_needed_until_the_end_waits_for_no_restart(fake, spec):
    """Its delay may be longer than the end waits for it; at the very end nobody is needed."""
    supervisor, spawner, _ = fake
    supervisor.start(spec)
    for number in range(2):
        spawner.lives[-1].code = 1
        supervisor.poll()
        supervisor.end_restarts(needed=[spec.name])
        supervisor.poll()
        assert len(spawner.lives) == number + 2
    spawner.lives[-1].code = 1
    supervisor.poll()
    supervisor.end_restarts()
    assert supervisor.names() == []


# --- the launcher's own end ------------------------------------------------------------------------

LAUNCHER = """
import signal, sys, time
from pathlib import Path
from spreeze_zmq.supervisor import GroupSpawner, ProcessSpec, Supervisor
folder = Path(sys.argv[1])
(folder / "sockets").mkdir()
(folder / "sockets" / "report").touch()
(folder / "page.url").touch()
def start(name, script, **changes):
    supervisor.start(ProcessSpec(name, ("/bin/sh", "-c", script), folder / (name + ".log"), **changes))
supervisor = Supervisor(GroupSpawner([folder / "sockets", folder / "page.url"]))
start("sampler", f"sleep 60 & echo $$ $! >> {folder}/pids; wait")
start("broker", f"trap 'sleep 0.3; echo done > {folder}/summary; exit' TERM; echo $$ >> {folder}/pids; "
      "while :; do sleep 0.05; done", parent_death_signal=signal.SIGTERM)
(folder / "pids").touch()
while len(sys.argv) < 3 or len((folder / "pids").read_text().split()) < int(sys.argv[2]):
    supervisor.poll()
    time.sleep(0.05)
sys.exit(4)
"""


def test_kill_9_of_the_launcher_leaves_no_child_and_no_grandchild(tmp_path):
    """The kernel and the guard see to it; a broker that asks for SIGTERM still writes what it has to."""
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], start_new_session=True)
    try:
        pids = numbers_in(tmp_path / "pids", 3)
        until(lambda: len(children_of(launcher.pid)) == 3, "two children and the guard")
        pids = {*pids, *children_of(launcher.pid)}
    finally:
        launcher.kill()
        launcher.wait()
    until(lambda: all(gone(pid) for pid in pids), "the end of every process")
    assert (tmp_path / "summary").read_text() == "done\n"
    assert not {"sockets", "page.url"} & {path.name for path in tmp_path.iterdir()}


def test_a_process_that_does_not_clean_up_is_killed_by_the_clock(tmp_path, monkeypatch):
    """Also on a crowded machine, where each of the guard's short sleeps takes as long as five."""
    slow = tmp_path / "sleep"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 0.5\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(guard, "GRACE_S", 2)
    watch = guard.Guard()
    command, begins = ("/bin/sh", "-c", "trap '' TERM; /bin/sleep 60"), watch.group(graceful=True).begin
    stubborn, began_s = subprocess.Popen(command, start_new_session=True, preexec_fn=begins), time.monotonic()
    watch._lines.close()
    assert stubborn.wait(DEADLINE_S) == -signal.SIGKILL
    assert 0.9 < time.monotonic() - began_s < 4.0
    watch._shell.wait(DEADLINE_S)


def test_a_launcher_that_ends_without_a_word_leaves_nothing(tmp_path):
    """An exception past every handler is no excuse."""
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path), "3"])
    assert launcher.wait(DEADLINE_S) == 4
    pids = numbers_in(tmp_path / "pids", 3)
    until(lambda: all(gone(pid) for pid in pids), "the end of every process")


def children_of(pid):
    """The direct children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]


def test_close_leaves_nothing_not_even_the_guard(spec):
    """After the block no child of ours is left."""
    before = set(children_of(os.getpid()))
    with closing(Supervisor()) as supervisor:
        supervisor.start(shell(spec, "trap '' TERM; sleep 60"))
        assert len(set(children_of(os.getpid())) - before) == 2
    assert set(children_of(os.getpid())) <= before  # those of other tests may end meanwhile


def test_a_process_that_crashes_when_it_is_asked_to_stop_says_so(supervisor, spec):
    """Its last words are kept: nobody would look into its log."""
    code = (
        "import signal, sys, time\n"
        "def fail(*_): raise OSError('the last policy')\n"
        "signal.signal(signal.SIGTERM, fail)\n"
        "print('set', file=sys.stderr, flush=True)\n"
        "time.sleep(60)"
    )
    supervisor.start(python(spec, code))
    until(lambda: "set\n" in spec.log_path.read_text().splitlines(keepends=True), "the handler")
    supervisor.stop([spec.name])
    [exited] = events_until(supervisor, Exited)
    assert (exited.code, exited.expected, exited.is_fault) == (1, True, True)
    assert exited.words.endswith("OSError: the last policy")
