"""Processes are started as their specs say and kept alive within limits: real ones, or fakes over time."""

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq.base.errors import DiskFull, InputError
from spreeze_zmq.base.patience import PATIENCE_S, RETRY_S
from spreeze_zmq.supervisor import Exited, GaveUp, Printed, Restarted, Unwanted
from tests.unit.supervisor.lives import DEADLINE_S, events_until, python, shell

# --- crashing --------------------------------------------------------------------------------------


def test_a_crash_loop_backs_off_and_gives_up(fake, spec):
    """Delays double; the crash after the last restart ends it."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    delays = []
    for attempt in (1, 2, 3):
        spawner.lives[-1].code = 10 + attempt
        [exited] = supervisor.poll()
        assert (exited.code, exited.restarting) == (10 + attempt, True)
        crashed_s = clock.now_s
        while not (events := supervisor.poll()):
            clock.now_s += 0.01
        assert [(event.attempt, event.name) for event in events] == [(attempt, spec.name)]
        delays.append(clock.now_s - crashed_s)
    assert delays == pytest.approx([0.2, 0.4, 0.8], abs=0.011)
    spawner.lives[-1].code = 14
    exited, gave_up = supervisor.poll()
    assert not exited.restarting
    assert str(gave_up) == "sampler-0 is not started again: 4 crashes within 60 s"
    clock.now_s += 60
    assert supervisor.poll() == []
    assert len(spawner.lives) == 4


@pytest.mark.parametrize("lives", [0, 1], ids=["the first life", "the next life"])
def test_a_life_waits_for_room_for_its_log(fake, spec, lives):
    """At most so long as any write does; nobody else is kept waiting, and it is no crash."""
    supervisor, spawner, clock = fake
    for gets_room in (True, False):
        full, begun = replace(spec, name=f"sampler-{int(gets_room)}"), len(spawner.lives)
        if lives:
            supervisor.start(full)
            spawner.lives[-1].code = 1
            assert supervisor.poll()[0].restarting
            clock.now_s += 0.2
        spawner.error = DiskFull(Path("run"))
        if not lives:
            supervisor.start(full)
        until_s = clock.now_s + PATIENCE_S
        while clock.now_s < until_s - RETRY_S:
            assert supervisor.poll() == []
            clock.now_s += RETRY_S
        if gets_room:
            spawner.error = None
            clock.now_s += RETRY_S
            assert supervisor.poll() == [Restarted(full.name, 1, 0.2)] * lives
            assert supervisor.names() == [full.name]
        else:
            clock.now_s += 3 * RETRY_S
            [gave_up] = supervisor.poll()
            what = "is not started again" if lives else "cannot be started"
            assert str(gave_up) == f"{full.name} {what}: {spawner.error}"
        assert len(spawner.lives) == begun + lives + gets_room


def test_crashes_beyond_the_window_are_forgotten(fake, spec):
    """One crash a minute goes on for ever, and each is mended as quickly as the first."""
    supervisor, spawner, clock = fake
    supervisor.start(replace(spec, max_restarts=1))
    for _ in range(5):
        clock.now_s += spec.restart_window_s + 1
        spawner.lives[-1].code = 1
        supervisor.poll()
        clock.now_s += 0.2
        assert supervisor.poll() == [Restarted(spec.name, 1, 0.2)]


def test_any_number_of_restarts_is_at_most_ten_seconds_apart(fake, spec):
    """A topology may allow very many, of a process that is never at work."""
    supervisor, spawner, clock = fake
    supervisor._worked_s = lambda name: 0.0
    supervisor.start(replace(spec, max_restarts=10_000))
    for restart in range(1, 1200):
        spawner.lives[-1].code = 1
        assert supervisor.poll()[0].restarting
        clock.now_s += 10.0
        assert supervisor.poll() == [Restarted(spec.name, restart, min(0.1 * 2 ** min(restart, 9), 10.0))]


@pytest.mark.parametrize(("work_s", "lives"), [(0.0, 4), (15.0, 4), (25.0, 20)])
def test_only_work_makes_a_crash_old(fake, spec, work_s, lives):
    """Who is killed for its start, or for a silence, has lived for long each time: at 25 s of work between
    two such ends there are never four within a minute of it.
    """
    supervisor, spawner, clock = fake
    supervisor._worked_s = lambda name: work_s
    supervisor.start(spec)
    while len(spawner.lives) < 20 and supervisor.names():
        clock.now_s += work_s + 30.0
        spawner.lives[-1].code = -signal.SIGKILL
        events = supervisor.poll()
        clock.now_s += 0.8
        supervisor.poll()
    assert len(spawner.lives) == lives
    spans = {0.0: "92 s, in which it was at work for 0 s", 15.0: "137 s, in which it was at work for 45 s"}
    if work_s in spans:
        assert str(events[-1]) == f"sampler-0 is not started again: 4 crashes within {spans[work_s]}"


def test_who_is_asked_to_stop_before_its_restart_is_said_not_to_come_back(fake, spec):
    """It was said to be started again; once, and not where somebody else has the name by then."""
    supervisor, spawner, _ = fake
    for _ in range(2):
        supervisor.start(spec)
        spawner.lives[-1].code = 1
        [exited] = supervisor.poll()
        assert exited.restarting
        supervisor.stop([spec.name])
    assert supervisor.poll() == [Unwanted(spec.name)]
    assert (supervisor.poll(), supervisor.names()) == ([], [])


@pytest.mark.parametrize("code", [0, -signal.SIGTERM])
def test_who_leaves_without_being_asked_is_started_again(fake, spec, code):
    """A daemon that is short of memory sends SIGTERM: components obey it and exit with 0, or die of it."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    spawner.lives[0].code = code
    [exited] = supervisor.poll()
    assert (exited.expected, exited.restarting) == (False, True)
    assert "SIGTERM" in str(exited)
    clock.now_s += 1
    assert isinstance(*supervisor.poll(), Restarted)


def test_exit_codes_are_known_where_our_own_parent_ignores_its_children(tmp_path):
    """SIGCHLD may be inherited ignored, as from some containers' first process: the kernel then reaps."""
    code = (
        "from contextlib import closing\n"
        "from pathlib import Path\n"
        "from spreeze_zmq.supervisor import Exited, ProcessSpec, Supervisor\n"
        "with closing(Supervisor()) as supervisor:\n"
        f"    log = Path({str(tmp_path / 'log')!r})\n"
        "    supervisor.start(ProcessSpec('sampler-0', ('/bin/sh', '-c', 'exit 2'), log))\n"
        "    while not (events := supervisor.poll()): pass\n"
        "    print(events[0].how)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert (done.stdout, done.stderr) == ("exited with code 2\n", "")


def test_input_at_fault_is_not_tried_again(fake, spec):
    """Exit code 2 means that the next life would end in the same way."""
    supervisor, spawner, _ = fake
    supervisor.start(spec)
    spawner.lives[0].code = InputError.exit_code
    exited, gave_up = supervisor.poll()
    assert not exited.restarting
    assert "input is at fault" in str(gave_up)


def test_a_killed_process_lives_again(supervisor, spec):
    """kill() of one that hangs is a crash; the new life is another process."""
    supervisor.start(spec)
    first = supervisor.pids()[spec.name]
    supervisor.kill(spec.name)
    exited, restarted = events_until(supervisor, Restarted)
    assert (exited.how, exited.restarting, restarted.attempt) == ("was killed by SIGKILL", True, 1)
    assert supervisor.pids()[spec.name] != first


def test_a_program_that_vanishes_is_given_up(fake, spec):
    """A restart that cannot be is an event, not an exception in the launcher's loop."""
    supervisor, spawner, clock = fake
    supervisor.start(spec)
    spawner.lives[0].code = 1
    supervisor.poll()
    spawner.error = InputError("no such program")
    clock.now_s += 1
    [gave_up] = supervisor.poll()
    assert gave_up.reason == "no such program"


def test_a_crash_brings_its_own_traceback_and_not_an_earlier_lifes(supervisor, spec):
    """The words are those of the life that ended."""
    code = "import os, sys\nif os.path.exists('{0}'): sys.exit(3)\nopen('{0}', 'w')\nraise KeyError('obs')"
    marker = spec.log_path.with_name("second")
    supervisor.start(python(spec, code.format(marker), max_restarts=1))
    first, _, second, _ = events_until(supervisor, GaveUp)
    assert first.words.startswith("Traceback (most recent call last):")
    assert first.words.endswith("KeyError: 'obs'")
    assert second.words == "(its log says nothing)"


def test_a_foreign_sigkill_hints_at_memory(supervisor, spec):
    """The kernel says nothing to the process that it kills for want of memory."""
    supervisor.start(replace(spec, max_restarts=0))
    os.kill(supervisor.pids()[spec.name], signal.SIGKILL)
    exited = events_until(supervisor, GaveUp)[0]
    assert "was killed by SIGKILL" in str(exited)
    assert "memory" in exited.words


# --- starting --------------------------------------------------------------------------------------


def test_a_child_gets_its_threads_niceness_cpus_session_and_environment(supervisor, spec):
    """Everything that the spec says holds in the child."""
    code = (
        "import os, sys; v = os.environ; "
        "print(*(v[name + '_NUM_THREADS'] for name in ('OMP', 'MKL', 'OPENBLAS', 'NUMEXPR')), "
        "v['PYTHONUNBUFFERED'], v['EXTRA'], os.nice(0), *os.sched_getaffinity(0), "
        "os.getsid(0) == os.getpid(), repr(sys.stdin.read()))"
    )
    cpu = min(os.sched_getaffinity(0))
    changes = {"threads": 2, "nice": 7, "cpus": frozenset({cpu}), "environment": {"EXTRA": "x"}}
    supervisor.start(python(spec, code, **changes))
    events_until(supervisor, Exited)
    assert (
        spec.log_path.read_text().splitlines()[-1] == f"2 2 2 2 1 x {min(19, os.nice(0) + 7)} {cpu} True ''"
    )


def test_the_log_holds_both_outputs_of_every_life(supervisor, spec):
    """Appended, each life under its command."""
    supervisor.start(shell(spec, "echo out; echo err >&2; exit 1", max_restarts=1))
    events_until(supervisor, GaveUp)
    lines = spec.log_path.read_text().splitlines()
    assert lines[1:3] == lines[4:6] == ["out", "err"]
    assert lines[0].startswith("--- ")
    assert lines[0].endswith("exit 1'")


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (("spreeze-no-such-program", "run.json"), "there is no program"),
        (("/",), "not an executable file"),
        (("{text}",), "neither a program nor begins with #!"),
    ],
)
def test_a_command_that_cannot_run_is_named_with_its_component(supervisor, spec, tmp_path, command, cause):
    """The user's component.toml is at fault, and the message says where."""
    text = tmp_path / "text"
    text.write_text("no program\n")
    text.chmod(0o755)
    command = tuple(word.format(text=text) for word in command)
    with pytest.raises(InputError, match=cause) as raised:
        supervisor.start(replace(spec, command=command))
    assert "sampler-0" in str(raised.value)
    assert shlex.join(command) in str(raised.value)
    assert supervisor.names() == []


def test_cpus_that_are_not_there_are_refused(supervisor, spec):
    """Before anything starts."""
    with pytest.raises(InputError, match=r"none of its CPUs \[4095\]"):
        supervisor.start(replace(spec, cpus=frozenset({4095})))


def test_two_processes_cannot_have_one_name(supervisor, spec):
    """A mistake of the caller."""
    supervisor.start(spec)
    with pytest.raises(ValueError, match="sampler-0 is supervised already"):
        supervisor.start(spec)


# --- output ---------------------------------------------------------------------------------------


def test_a_print_is_noticed_once_and_kept_beside_the_log(supervisor, spec):
    """Of the process or of a program that it starts, its last one too; what is logged is none."""
    supervisor.start(shell(spec, "echo logged >&2; sleep 0.2; sh -c 'echo printed'; echo twice"))
    events = events_until(supervisor, Exited)
    assert events[0] == Printed("sampler-0", spec.log_path)
    assert [type(event) for event in events[1:]] == [Exited]
    assert spec.log_path.read_text().splitlines()[1:] == ["logged", "printed", "twice"]


def test_a_process_that_prints_nothing_is_not_said_to_print(supervisor, spec):
    """Although its log has lines."""
    supervisor.start(shell(spec, "echo logged >&2"))
    assert [type(event) for event in events_until(supervisor, Exited)] == [Exited]


def test_a_print_of_any_character_reaches_the_log(supervisor, spec, monkeypatch):
    """In a C locale Python would refuse it, and the environment that prints it would fail."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    supervisor.start(python(spec, "print('a \\u2192 b')"))
    assert events_until(supervisor, Exited)[-1].code == 0
    assert "a \u2192 b" in spec.log_path.read_text(encoding="utf-8")
