"""Processes are kept alive within limits and none is left behind: real ones, or fake ones over time."""

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.supervisor import (
    Exited,
    GaveUp,
    Printed,
    ProcessSpec,
    Restarted,
    Supervisor,
    guard,
    last_words,
)
from spreeze_zmq.supervisor.sentences import MOST_LINES

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

    def close(self):
        """Nothing to do."""


class FakeClock:
    """Time that the test moves."""

    now_s = 100.0

    def __call__(self):
        """The time now."""
        return self.now_s


@pytest.fixture
def spec(tmp_path):
    """A process that sleeps."""
    return ProcessSpec("sampler-0", ("sleep", "60"), tmp_path / "logs" / "sampler-0.log")


@pytest.fixture
def supervisor():
    """A supervisor of real processes."""
    with closing(Supervisor()) as supervisor:
        yield supervisor


@pytest.fixture
def fake():
    """A supervisor, its spawner and its clock, with nothing real behind them."""
    spawner, clock = FakeSpawner(), FakeClock()
    return Supervisor(spawner, clock), spawner, clock


def python(spec, code, **changes):
    """``spec`` running a line of Python."""
    return replace(spec, command=(sys.executable, "-S", "-c", code), **changes)


def shell(spec, script, **changes):
    """``spec`` running a line of shell."""
    return replace(spec, command=("/bin/sh", "-c", script), **changes)


def until(condition, what):
    """Wait until ``condition()`` is true and return its value."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"waited {DEADLINE_S} s for {what}"
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
    except FileNotFoundError:
        return True


def numbers_in(path, count):
    """The process ids that a script has written, once there are ``count``."""

    def read():
        numbers = path.read_text().split() if path.exists() else []
        return [int(number) for number in numbers] if len(numbers) >= count else None

    return until(read, f"{count} numbers in {path}")


# --- stopping --------------------------------------------------------------------------------------


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
    stubborn = subprocess.Popen(("/bin/sh", "-c", "trap '' TERM; /bin/sleep 60"), start_new_session=True)
    watch, began_s = guard.Guard(), time.monotonic()
    watch.add(stubborn.pid, graceful=True)
    watch._shell.stdin.close()
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
    assert set(children_of(os.getpid())) == before


# --- last words ------------------------------------------------------------------------------------

CHAIN = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'obs'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
ValueError: shape (3,)
expected (4,)"""


def test_last_words_are_the_last_traceback_with_its_causes(tmp_path):
    """Earlier tracebacks that were survived do not count; the whole message does."""
    log = tmp_path / "log"
    log.write_text(
        "Traceback (most recent call last):\nOSError: survived\n12:00 INFO on we go\n" + CHAIN + "\n\n"
    )
    assert last_words(log) == CHAIN


def test_last_words_without_a_report_are_the_first_and_the_last_lines_of_the_life(tmp_path):
    """A program in another language has its own way of failing, which may begin at its first line."""
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    ends = [f"line {number}" for number in (0, 1, 2)], [f"line {number}" for number in range(90, 100)]
    assert last_words(log).splitlines() == [*ends[0], "  ... 87 lines left out ...", *ends[1]]
    begun = len("line 0\n") * 10 + len("line 10\n") * 80
    assert last_words(log, begun).splitlines() == ends[1]
    log.write_text("an earlier life\n" + "begun\n" * 3 + "at work\n" * 20_000 + "\n".join(ends[1]) + "\n")
    assert last_words(log, len("an earlier life\n")).splitlines() == ["begun"] * 3 + ["  ..."] + ends[1]


#: What programs in other languages say as they crash: the line that matters, then many of the stack.
CRASHES = {
    "JavaScript": "/s/sampler.js:12\n  envs.step(a)\n       ^\n\nTypeError: envs.step is not a function\n",
    "Rust": "thread 'main' panicked at src/main.rs:9:5:\nindex out of bounds: the len is 3\n",
    "Go": "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\n",
    "C++": "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::at\n",
}


@pytest.mark.parametrize("language", CRASHES)
def test_last_words_of_a_foreign_crash_begin_with_what_happened(tmp_path, language):
    """However deep the stack below it, and whatever was said before."""
    log = tmp_path / "log"
    report = CRASHES[language] + "".join(f"    at frame {number}\n" for number in range(30))
    log.write_text("at work\n" * 50 + report)
    words = last_words(log)
    assert CRASHES[language] in words
    assert words.endswith("at frame 29")
    assert words.count("at work") <= 4


def test_last_words_begin_at_faulthandlers_report(tmp_path):
    """A segmentation fault has a stack too."""
    log = tmp_path / "log"
    log.write_text(
        "hello\n" * 20 + "Fatal Python error: Segmentation fault\n\nCurrent thread:\n  File 'a.py'\n"
    )
    assert last_words(log).startswith("Fatal Python error: Segmentation fault")


def test_last_words_of_a_deep_recursion_keep_both_ends(tmp_path):
    """How it began and what it said."""
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\n" + "  frame\n" * 2000 + "RecursionError: too deep\n")
    words = last_words(log).splitlines()
    assert words[0] == "Traceback (most recent call last):"
    assert words[-1] == "RecursionError: too deep"
    assert len(words) == MOST_LINES + 1


def test_last_words_of_nothing_are_empty(tmp_path):
    """No log, an empty one, and bytes that are no text are no reason to fail."""
    assert last_words(tmp_path / "none") == ""
    (tmp_path / "log").write_bytes(b"")
    assert last_words(tmp_path / "log") == ""
    (tmp_path / "log").write_bytes(b"\xff\xfe broken\n")
    assert last_words(tmp_path / "log").endswith("broken")


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
