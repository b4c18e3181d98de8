"""A run on a terminal of any kind: frames drawn again, plain lines, readers that are slow or gone."""

import contextlib
import fcntl
import io
import math
import os
import select
import struct
import subprocess
import sys
import termios
import time

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from spreeze_zmq.screen.terminal.chart import Returns
from spreeze_zmq.screen.terminal.drawing import frame
from spreeze_zmq.screen.terminal.view import KEPT_LINES, PLAIN_INTERVAL_S, STALLED_S, StatusView
from spreeze_zmq.screen.terminal.words import RUNNING, plain_line, stage_of
from tests.pace import slowness
from tests.unit.screen.terminal.drawn import (
    FACTS,
    LARGE,
    STAGES,
    STARTING,
    FakeClock,
    lines,
    scene,
    shown,
    terminal,
)
from tests.unit.screen.terminal.recorded import Recorded, evaluate


def test_a_terminal_keeps_facts_and_notes_above_one_frame():
    """The frame is redrawn in place, a note stays, and at the end the cursor is restored."""
    console, out = terminal()
    view = StatusView(console)
    view.begin(FACTS)
    view.show_processes(STAGES)
    view.update(STARTING)
    view.note("sampler-1 was killed by SIGKILL [not markup]")
    view.update(LARGE)
    view.close()
    text = out.getvalue()
    assert text.index("run folder") > text.index("sampler")  # in the frame, not above it as well
    assert text.count("curves          tensorboard --logdir runs/halfcheetah-20260102-030405") == 1
    assert text.count("sampler-1 was killed by SIGKILL [not markup]") == 1
    assert text.index("sampler-1 was killed") < text.index("10:01:23")
    assert "\x1b[1A\x1b[2K" in text  # up one line and clear it: drawn in place
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0


def test_without_colour_nothing_is_coloured():
    """NO_COLOR keeps bold and dim, see https://no-color.org."""
    colours = [f"\x1b[{number}m" for number in (32, 33, 36)] + ["\x1b[1;32m", "\x1b[1;33m", "\x1b[1;36m"]
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        console, out = terminal(**environment)
        view = StatusView(console)
        view.update(LARGE)
        view.close()
        assert any(colour in out.getvalue() for colour in colours) == coloured


def test_drawing_four_times_a_second_costs_less_than_a_fiftieth_of_a_core():
    """The launcher shares the machine with the training."""
    console, _ = terminal(120, 50)
    view = StatusView(console)
    view.begin(FACTS)
    view.update(LARGE)
    spent_s = math.inf
    for _ in range(50):
        began_s = time.process_time()
        view.update(LARGE)
        spent_s = min(spent_s, time.process_time() - began_s)  # what others make it wait is not its own
    view.close()
    print(f"a frame takes {1000 * spent_s:.2f} ms")
    assert 4 * spent_s < 0.02 * slowness()


def plain(clock):
    """A view that does not write to a terminal, and its output."""
    out = io.StringIO()
    return StatusView(Console(file=out, width=80, force_terminal=False), clock), out


def test_a_plain_line_names_its_figures_as_the_summary_does():
    """One line, `key=value`, however long: no key to be looked up, and no value of several figures."""
    assert plain_line(LARGE, {"sampler-3": "setting up", "broker-0": RUNNING}) == (
        "t=36083.4s left=713s state=training env_steps=1123456789 env_steps_per_s=1230123 "
        "critic_updates=1234567 critic_updates_per_s=190.2 actor_updates=617000 actor_updates_per_s=88.2 "
        "replay_ratio=7.98 policy_lag=1 episodes=1123456 training_return=-1234.6 evaluation=5792.8 "
        "best_return=5792.8 samples_dropped=0 messages_refused=0 failures=0 samplers=128 waiting=sampler-3"
    )


def test_a_plain_line_has_the_same_names_from_the_beginning():
    """A missing value is a dash, so that columns never move."""

    def names(line):
        return [word.partition("=")[0] for word in line.split()]

    assert names(plain_line(STARTING, {})) == names(plain_line(LARGE, {}))
    assert " left=- " in plain_line(STARTING, {})
    assert " evaluation=- best_return=- " in plain_line(STARTING, {})


def test_plain_lines_come_now_and_then_and_at_once_when_the_state_changes():
    """The log of a long run stays small and has the time at which training began."""
    clock = FakeClock()
    view, out = plain(clock)
    for _ in range(4):
        view.update(STARTING)
        clock.now_s += 0.5
    assert len(out.getvalue().splitlines()) == 1
    view.update(LARGE)
    view.update(LARGE)
    assert len(out.getvalue().splitlines()) == 2
    clock.now_s += PLAIN_INTERVAL_S
    view.update(LARGE)
    assert len(out.getvalue().splitlines()) == 3
    clock.now_s = 8 * 3600.0
    for _ in range(720):
        clock.now_s += 5.0
        view.update(LARGE)
    assert 50 <= len(out.getvalue().splitlines()) <= 70


def test_plain_lines_say_once_who_waits_for_long():
    """Even before the first status, and again only for another reason."""
    clock = FakeClock()
    view, out = plain(clock)
    for _ in range(20):
        view.show_processes({"critic_learner-0": "importing", "sampler-0": RUNNING})
        clock.now_s += 0.5
    for _ in range(20):
        view.show_processes({"critic_learner-0": "waits for rollouts from sampler", "sampler-0": RUNNING})
        clock.now_s += 0.5
    assert out.getvalue().splitlines() == [
        "note critic_learner-0 importing",
        "note critic_learner-0 waits for rollouts from sampler",
    ]


def test_plain_notes_and_the_last_figures_are_never_left_out():
    """Without colour, cursor movement or markup."""
    view, out = plain(FakeClock())
    view.update(STARTING)
    view.note("samplers 3 -> 2: blocked 61 % of the time [of 8.0]")
    view.update({**STARTING, "t_s": 0.9})
    view.close()
    rows = out.getvalue().splitlines()
    assert rows[1] == "note samplers 3 -> 2: blocked 61 % of the time [of 8.0]"
    assert rows[2].startswith("t=0.9s ")
    assert len(rows) == 3
    assert "\x1b" not in out.getvalue()


def in_terminal(**environment):
    """What a view with a note and a status writes to a pseudo-terminal, line by line."""
    master, slave = os.openpty()
    code = "from spreeze_zmq.screen.terminal.view import StatusView\n"
    code += "from tests.unit.screen.terminal.recorded import large\n"
    code += "view = StatusView(); view.note('a \\u2192 b'); view.update(large()); view.close()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=slave, env={**os.environ, **environment}
    ) as done:
        os.close(slave)
        assert done.wait(60) == 0
    written = b""
    with contextlib.suppress(OSError):  # at its end: what was written comes by and by
        while piece := os.read(master, 65_536):
            written += piece
    os.close(master)
    return written


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines():
    """An editor's shell."""
    written = in_terminal(TERM="dumb", PYTHONIOENCODING="utf-8").decode().splitlines()
    assert written[0] == "note a \u2192 b"
    assert written[1].startswith("t=36083.4s ")
    assert len(written) == 2


def test_a_terminal_without_unicode_gets_the_frame_in_ascii():
    """In a C locale, with nothing replaced by a question mark."""
    text = in_terminal(TERM="xterm", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="").decode("ascii")
    assert "\x1b[" in text
    assert "evaluation" in text
    assert "5792.8" in text
    assert " +- 88.2" in text
    assert "a \\u2192 b" in text
    assert "?" not in text.replace("\x1b[?25", "")


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "…"), ("ascii", "~")])
def test_a_frame_fits_its_terminal_in_every_encoding(encoding, mark):
    """Signs that take two characters in ASCII make no line too long, and the curve is drawn."""
    crowded = scene(LARGE)
    crowded.facts = {**FACTS, "run": "HalfCheetah " * 20}
    for width in (40, 60, 80):
        rows = lines(frame(crowded, width, 40, encoding), 200)
        assert max(map(cell_len, rows)) <= width
        assert any(row.endswith(mark) for row in rows) == (width < 80)
        assert rows[0].endswith("training  10:01:23")
        assert "".join(rows).isascii() == (encoding == "ascii")
    assert sum(set("|':. ").issuperset(row[8:]) and len(row) > 8 for row in rows) >= 5 * (encoding == "ascii")


@pytest.mark.parametrize("draws", [True, False])
def test_a_status_that_lacks_figures_does_not_end_the_run(draws):
    """PROTOCOL.md requires no field: one line says what is missing, and the processes are shown."""
    console, out = terminal() if draws else (Console(file=(out := io.StringIO())), out)
    view = StatusView(console)
    for t_s in (1.0, 2.0):
        view.update({"state": "training", "t_s": t_s})
        view.show_processes({"sampler-0": stage_of({"pid": 1})})
    view.close()
    assert out.getvalue().count("the figures of this run cannot be shown: KeyError") == 1


def test_a_return_that_is_no_number_is_shown_and_left_out_of_the_curve():
    """As some environments' rewards are."""
    run, returns = Recorded(), Returns()
    for number, value in enumerate((1.0, float("inf"), float("nan"), 2.0)):
        evaluate(run.record, float(number), number, value, 0.0)
        returns.take(run.status("training", float(number)))
    assert returns.points == [(0.0, 1.0), (3.0, 2.0)]
    run.record.episodes.take(np.array([np.nan], np.float32), np.array([3], np.int32))
    assert "in training     nan" in shown(run.status("training", 5.0))


def test_a_reader_that_has_gone_ends_the_view_and_nothing_else():
    """As with ``| head -1``: later output is discarded, and the exit code is that of the run."""
    code = "from spreeze_zmq.screen.terminal.view import StatusView\n"
    code += "from tests.unit.screen.terminal.recorded import starting\n"
    code += "view = StatusView()\nfor _ in range(20_000): view.note('x' * 100)\n"
    code += "view.update(starting()); view.close(); import sys; print('alive', file=sys.stderr)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stdout.readline() == "note " + "x" * 100 + "\n"
        done.stdout.close()
        assert done.stderr.read() == "alive\n"
        assert done.wait(60) == 0


def test_a_terminal_that_nobody_reads_does_not_hold_up_the_run_and_is_drawn_again_later():
    """A stalled connection: two hundred frames are more than its buffer takes."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    code = "import sys; from spreeze_zmq.screen.terminal.view import StatusView\n"
    code += "from tests.unit.screen.terminal.recorded import large\n"
    code += "view, status = StatusView(), large()\nfor _ in range(200): view.update(status)\n"
    code += "sys.__stderr__.write('alive\\n'); sys.stdin.readline(); view.update(status); view.close()"
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=slave, env={**os.environ, "TERM": "xterm-256color"}, **pipes
    ) as done:
        os.close(slave)
        assert done.stderr.readline() == "alive\n"
        read = [os.read(master, 65_536)]
        while select.select([master], [], [], 1.0)[0]:
            read.append(os.read(master, 65_536))
        done.stdin.write("\n")
        done.stdin.flush()
        last = b""
        with contextlib.suppress(OSError):  # the other end has been closed
            while piece := os.read(master, 65_536):
                last += piece
        assert done.wait(60) == 0
    os.close(master)
    assert len(b"".join(read)) < 200_000
    assert last.count(b"\x1b[2J") == 2  # on an empty screen
    assert b"5792.8" in last


def test_a_terminal_that_is_stopped_goes_on_later():
    """Of the notes between Ctrl-S and Ctrl-Q the newest are shown then, with the number of those before."""
    master, slave = os.openpty()
    console = Console(file=os.fdopen(slave, "w"), width=80, height=24, force_terminal=True)
    view = StatusView(console, plain=True)
    termios.tcflow(slave, termios.TCOOFF)
    began_s = time.monotonic()
    for number in range(KEPT_LINES + 5):
        view.note(str(number))
    assert time.monotonic() - began_s < 25 * STALLED_S  # of each that was written it would wait for so long
    termios.tcflow(slave, termios.TCOON)
    view.show_processes({})
    read = ""
    while not read.endswith(f"note {KEPT_LINES + 4}\r\n") and select.select([master], [], [], 30.0)[0]:
        read += os.read(master, 65_536).decode()
    said = ["5 lines are left out here, as the terminal took none", *range(5, KEPT_LINES + 5)]
    assert read.split("\n") == [*(f"note {line}\r" for line in said), ""]
    os.close(master)
