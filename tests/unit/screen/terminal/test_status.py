"""The display: a frame that fits any terminal, greppable lines elsewhere, cheap to draw."""

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
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from spreeze_zmq.screen.terminal.chart import Returns, curve
from spreeze_zmq.screen.terminal.drawing import frame
from spreeze_zmq.screen.terminal.ending import next_commands, outcome
from spreeze_zmq.screen.terminal.numbers import decimal
from spreeze_zmq.screen.terminal.sections import Scene
from spreeze_zmq.screen.terminal.view import PLAIN_INTERVAL_S, StatusView
from spreeze_zmq.screen.terminal.words import RUNNING, ended_by, plain_line, program, progress, stage_of
from tests.pace import slowness
from tests.unit.screen.terminal.recorded import Recorded, evaluate, large, report, starting

STARTING, LARGE = starting(), large()
FACTS = {
    "run": "HalfCheetah-v5  sac  seed 1",
    "run folder": "runs/halfcheetah-20260102-030405",
    "page": "http://127.0.0.1:40123/?token=abcdef",
    "curves": "tensorboard --logdir runs/halfcheetah-20260102-030405",
}
#: What the launcher knows of the processes of ``STARTING``.
STAGES = {
    "critic_learner-0": "importing",
    "actor_learner-0": stage_of(STARTING["processes"]["actor_learner-0"]),
    "broker-0": RUNNING,
    "evaluator-0": "setting up",
    "sampler-0": "importing",
    "sampler-1": "importing",
}


class FakeClock:
    """Time that the test moves."""

    now_s = 0.0

    def __call__(self):
        """The time now."""
        return self.now_s


def scene(status, stages=None):
    """The scene of a status, with a curve of 20 evaluations if it has any."""
    returns = Returns()
    if status and status["evaluation"]["last"]:
        run = Recorded("halfcheetah")
        for number in range(20):
            evaluate(run.record, 1800.0 * (number + 1), 55_000_000 * (number + 1), 331.2 * number, 88.2)
            returns.take(run.status("training", 1800.0 * (number + 1)))
    return Scene(FACTS, status, stages or {}, dict.fromkeys(stages or {}, 2.0), returns)


def lines(drawn, width=80):
    """The lines of a frame on a terminal, without colours."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(drawn, end="")
    return [line.rstrip() for line in out.getvalue().splitlines()]


def shown(status, width=80, height=40, stages=None):
    """The frame of a status as one text."""
    return "\n".join(lines(frame(scene(status, stages), width, height), width))


def terminal(width=80, height=24, **environment):
    """A console that takes itself for a terminal, and its output."""
    out = io.StringIO()
    environment = {"TERM": "xterm-256color", **environment}
    console = Console(file=out, width=width, height=height, force_terminal=True, _environ=environment)
    return console, out


# --- a frame --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("height", [12, 24, 50])
@pytest.mark.parametrize(
    ("status", "stages"),
    [({}, STAGES), (STARTING, STAGES), (LARGE, None)],
    ids=["before the first status", "starting", "large"],
)
def test_a_frame_fits_its_terminal_and_cuts_no_figure(status, stages, width, height):
    """It always shows the returns and every role, from the first moment to the largest run."""
    text = shown(status, width, height, stages)
    rows = text.splitlines()
    assert len(rows) <= height
    assert max(cell_len(row) for row in rows) <= width
    cut = [row for row in rows if "…" in row]
    assert all(row.startswith("until ") for row in cut)  # four conditions at once are wider than 60 columns
    for name in ("evaluation", "best", "in training") if status else ():
        assert any(row.startswith(name) for row in rows), name
    for group in ("critic learner", "actor learner", "sampler", *(["broker", "evaluator"] if stages else ())):
        assert any(group in row for row in rows), group


def test_each_machine_that_has_joined_has_a_line():
    """Its samplers, what they make, and its load; it fits a narrow terminal."""
    run = Recorded()
    about = {"node": "node-1", "host": "desk2.lab.example.org", "cores": 64, "busy": 63.5}
    names = [f"sampler-{index}" for index in range(8, 72)]
    about |= {"memory_bytes": 120_000_000_000, "processes": names, "gone": False}
    about |= {"most": 64, "samplers": 64}
    run.record.machines.take({**about, "sent_bytes_per_s": 1e6, "received_bytes_per_s": 0.0})
    [row] = [row for row in shown(run.status("training", 9.0), width=80).splitlines() if "desk2" in row]
    assert row.split(maxsplit=1)[1] == "64 samplers, 0.0 env steps/s, 63.5 of 64 cores busy, 120.0 GB"


def test_failures_of_the_environment_have_one_line():
    """Their count and the newest."""
    run = Recorded()
    for step in (7, 120):
        fields = {"name": "sampler-0", "summary": f"a reward is nan (step {step})", "traceback": ""}
        run.record.take_failure("sampler-0", fields, 3.0)
    assert "2 failures, the newest: sampler-0: a reward is nan (step 120)" in shown(
        run.status("training", 9.0), 80, 24
    )


@pytest.mark.parametrize("height", [3, 4, 6, 8])
def test_the_returns_are_the_last_to_go(height):
    """However low the terminal is."""
    text = shown(LARGE, 60, height)
    assert len(text.splitlines()) <= height
    assert "evaluation      5792.8 ± 88.2 n=30, at 1.1G steps, 10:00:00" in text
    assert "best            5792.8 ± 88.2" in text
    assert "in training     -1234.6" in text


def test_a_large_run_reads_as_it_should():
    """Aligned, with all figures."""
    rows = shown(LARGE, 80, 23).splitlines()
    assert [row for row in rows if "│" not in row] == [
        "HalfCheetah-v5  sac  seed 1" + " " * 35 + "training  10:01:23",
        rows[1],
        "until return 10000 or 2G env steps or 1000G trained or 1000 min",
        "evaluation      5792.8 ± 88.2 n=30, at 1.1G steps, 10:00:00",
        "best            5792.8 ± 88.2 n=30, at 1.1G steps, 10:00:00",
        "in training     -1234.6   1,123,456 episodes of 1,000 steps",
        "return of the evaluations",
        "        30:00" + " " * 59 + "10:00:00",
        "env steps         1,123,456,789  1,230,123 /s   replay ratio 7.98 of 8",
        "trained on      912,345,678,901 12,345,678 /s   policy lag   1, at most 12,000",
        "critic updates        1,234,567        190 /s   learners use 24% of 40.0 TFLOP/s",
        "actor updates           617,000       88.2 /s",
        "actor loss 98.7   critic loss 0.123   q mean -12.3",
        "critic learner    99% busy     0% blocked     1% starved     99% cpu   12.4 GB",
        "actor learner     40% busy     0% blocked    60% starved     40% cpu    1.0 GB",
        "128 samplers      39% busy    61% blocked     0% starved   4992% cpu  290.6 GB",
        "page            http://127.0.0.1:40123/?token=abcdef",
        "run folder      runs/halfcheetah-20260102-030405",
    ]
    assert rows[1].endswith("─  11:52 left at most")


def test_before_anything_has_happened_the_frame_says_so():
    """In words, with the waiting process and its peer, but without the socket's path."""
    text = shown(STARTING, stages=STAGES)
    assert "starting  0:00" in text
    assert "until Ctrl-C" in text
    assert "no episode has ended yet" in text
    assert "actor learner   waits for critics from critic learner   2 s" in text
    assert "2 samplers      importing   2 s" in text
    assert "ipc://" not in text


def test_processes_of_one_role_at_different_stages_have_lines_of_their_own():
    """Waiting processes come first; a process that the launcher did not start is shown too."""
    stages = {"sampler-0": RUNNING, "sampler-1": "starts again soon", "critic_learner-0": RUNNING}
    rows = shown(LARGE, stages=stages).splitlines()
    samplers = [row for row in rows if "sampler" in row]
    assert samplers[0].startswith("sampler         starts again soon")
    assert samplers[1].startswith("127 samplers      39% busy")
    assert any(row.startswith("actor learner     40% busy") for row in rows)


def test_a_run_with_one_learner_has_no_line_for_the_other():
    """An algorithm without a policy loss has no actor."""
    run = Recorded("cartpole_dqn")
    run.record.take_hello("critic_learner-0", 1, report("critic_learner", 1), 1.0)
    text = shown(run.status("training", 2.0))
    assert "critic updates" in text
    assert "actor" not in text


@pytest.mark.parametrize(
    ("stop", "left_s"),
    [
        ("return=6000", None),
        ("minutes=10", 540.0),
        ("env_steps=3000, minutes=10", 20.0),
        ("env_steps=3000, trained_transitions=16_000", 10.0),
        ("env_steps=100_000_000, minutes=10", 540.0),
        ("env_steps=500", 0.0),
    ],
)
def test_what_remains_is_the_nearest_condition_that_can_be_foreseen(stop, left_s):
    """From the time or the rates of env steps and trained transitions; never negative, and never from a
    return.
    """
    run = Recorded("pendulum", f"run.stop={{{stop}}}")
    for t_s, share in ((58.0, 0.0), (60.0, 1.0)):
        counters = {"env_steps": 800 + 200 * share, "trained_transitions": 6400 + 1600 * share}
        run.record.take_report("critic_learner-0", 1, report("critic_learner", 1, counters=counters), t_s)
    nearest = progress(run.status("training", 60.0))
    assert (nearest.left_s if nearest else None) == left_s


def test_nothing_is_foreseen_from_a_rate_of_zero():
    """As before the first step."""
    run = Recorded("pendulum", "run.stop={env_steps=1000, trained_transitions=8000}")
    assert progress(run.status("starting", 1.0)) is None


# --- the curve ------------------------------------------------------------------------------------


def test_a_rising_line_rises_from_corner_to_corner():
    """With two dots per column, four per row, and labels at both ends."""
    assert curve([(0.0, 0.0), (60.0, 10.0)], 18, 4) == [
        " 10.0│        ⣀⠤⠒⠉",
        "     │    ⣀⠤⠒⠉    ",
        "  0.0│⣀⠤⠒⠉        ",
        "      0:00    1:00",
    ]


def test_a_return_that_never_changes_is_a_level_line():
    """Although its range is 0."""
    rows = curve([(0.0, 50.0), (10.0, 50.0)], 21, 4)
    assert rows[1].partition("│")[2] == "⠤" * 15


def test_training_returns_are_drawn_until_there_are_two_evaluations():
    """The title names them."""
    run, returns = Recorded(), Returns()
    for t_s in (1.0, 2.0):
        run.record.episodes.take(np.full(3, -100.0 * t_s, np.float32), np.full(3, 200, np.int32))
        returns.take(run.status("training", t_s))
    assert (returns.title, returns.points) == ("return in training", [(1.0, -100.0), (2.0, -150.0)])
    evaluate(run.record, 2.1, 500, -90.0, 1.0)
    returns.take(run.status("training", 2.5))
    assert returns.title == "return in training"
    evaluate(run.record, 2.6, 600, -95.0, 1.0)
    returns.take(run.status("training", 3.0))
    returns.take(run.status("training", 3.5))
    assert (returns.title, returns.points) == ("return of the evaluations", [(2.1, -90.0), (2.6, -95.0)])


def test_a_long_run_keeps_a_bounded_number_of_points():
    """A night of evaluations costs no more to draw than an hour."""
    run, returns = Recorded(), Returns()
    for number in range(2000):
        run.record.evaluations.all.clear()
        evaluate(run.record, float(number), number, float(number), 1.0)
        returns.take(run.status("training", float(number)))
    assert 256 <= len(returns.points) <= 512
    assert returns.points[0][0] < 50
    assert returns.points[-1] == (1999.0, 1999.0)
    assert sorted(returns.points) == returns.points


# --- a terminal -----------------------------------------------------------------------------------


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


# --- no terminal ----------------------------------------------------------------------------------


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
    for _ in range(3600):
        clock.now_s += 1.0
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
    written = os.read(master, 65_536)
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
    """A stalled connection: a thousand frames are more than its buffer takes."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    code = "import sys; from spreeze_zmq.screen.terminal.view import StatusView\n"
    code += "from tests.unit.screen.terminal.recorded import large\n"
    code += "view, status = StatusView(), large()\nfor _ in range(1000): view.update(status)\n"
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
        while b"ended" not in last:
            last += os.read(master, 65_536)
        assert done.wait(60) == 0
    os.close(master)
    assert len(b"".join(read)) < 200_000
    assert last.count(b"\x1b[2J") == 2  # on an empty screen
    assert b"5792.8" in last


def test_a_terminal_that_is_stopped_goes_on_later():
    """Output between Ctrl-S and Ctrl-Q is left out."""
    master, slave = os.openpty()
    console = Console(file=os.fdopen(slave, "w"), width=80, height=24, force_terminal=True)
    view = StatusView(console)
    view.note("before")
    termios.tcflow(slave, termios.TCOOFF)
    began_s = time.monotonic()
    for _ in range(50):
        view.note("between")
    assert time.monotonic() - began_s < 1.0
    termios.tcflow(slave, termios.TCOON)
    view.note("after")
    read = b""
    while b"after" not in read:
        read += os.read(master, 65_536)
    assert read.split() == [b"before", b"after"]
    os.close(master)


# --- the end --------------------------------------------------------------------------------------


def test_the_last_words_are_of_the_runs_own_summary():
    """With the result, its time, and why the run ended."""
    run = Recorded()
    assert outcome(run.record.summary("", 2.0, final=True), "") == [
        "ended after 2.0 s and 0 env steps: failed",
        "nothing evaluated",
    ]
    counters = {"env_steps": 28_672, "trained_transitions": 900_000}
    run.record.take_report("critic_learner-0", 1, report("critic_learner", 1, counters=counters), 9.0)
    evaluate(run.record, 8.9, 27_000, -152.34, 70.0)
    evaluate(run.record, 9.1, 28_000, -180.0, 60.0)
    summary = run.record.summary("", 9.31, final=True)
    assert outcome(summary, "return -176.0 >= -200") == [
        "ended after 9.3 s and 28,672 env steps: return -200 reached",
        "best return -152.3 ± 70.0 in 30 episodes, which also chose it, at 27,000 env steps",
        "its mean lies between -187.3 and -117.3 (95 % by Student's t)",
    ]
    summary["best"]["final"] = True
    assert " in 30 fresh episodes, at " in outcome(summary, "return -176.0 >= -200")[1]


def test_the_last_words_state_one_return():
    """That of the saved policy; the one of the moment at which the run ended only where they disagree."""
    assert ended_by("return -176.0 >= -200", -143.7) == "return -200 reached"
    assert ended_by("return -176.0 >= -200", -205.0) == "return -176.0 >= -200"
    assert ended_by("env_steps 1500672 >= 1500000", None) == "1,500,000 env steps reached"
    assert ended_by("minutes 0.50 >= 0.5", -143.7) == "0.5 minutes reached"
    assert ended_by("interrupted by the user", -143.7) == "interrupted by the user"


def test_a_small_return_is_told_from_zero():
    """As those of sparse or scaled rewards are."""
    values = (-12345.6, -1234.56, 12.34, 0.8333, -0.0421, 0.000188, 0.0, -0.0, None)
    shown_as = ["-12,346", "-1234.6", "12.3", "0.83", "-0.042", "0.00019", "0.0", "0.0", "-"]
    assert [decimal(value) for value in values] == shown_as


def test_what_rounds_to_nothing_is_left_out():
    """The share of the arithmetic that the learners of a small network use."""
    used = {"flops_per_s": 1e9, "limit_flops_per_s": 1e12, "share": 1e-3}
    assert "learners use" not in shown({**LARGE, "efficiency": used})
    assert "learners use 5% of 1.0 TFLOP/s" in shown({**LARGE, "efficiency": {**used, "share": 0.05}})


def test_what_keeps_a_run_from_learning_is_its_first_last_word():
    """Before any result; what did no harm is left out."""
    run = Recorded("pendulum", "algorithm.learning_rate=1.0", "algorithm.target_entropy=50.0")
    evaluate(run.record, 8.9, 27_000, -1300.0, 70.0)
    summary = run.record.summary("minutes 1", 60.0, final=True)
    words = outcome(summary, "minutes 1")
    assert words[1].startswith("finding: algorithm.learning_rate is 1: each update moves")
    assert words[2].startswith("finding: algorithm.target_entropy is 50")
    assert words[3].startswith("best return")
    for row in summary["findings"]:
        row["rank"] = 2
    assert outcome(summary, "minutes 1")[1].startswith("best return")


@pytest.mark.parametrize("height", [8, 24, 60])
def test_the_worst_finding_takes_one_line_below_the_state(height):
    """With the number of all, cut at the terminal's width; no line without any."""
    run = Recorded("pendulum", "algorithm.learning_rate=1.0", "algorithm.target_entropy=50.0")
    lines = frame(scene(run.status("training", 12.0)), 80, height).plain.splitlines()
    [line] = [line for line in lines if "finding" in line]
    assert line.startswith("finding 1 of 2: algorithm.learning_rate is 1: each update")
    assert len(line) <= 80
    assert lines.index(line) <= 2  # below the bar of progress, if there is room for one
    assert "finding" not in frame(scene(Recorded().status("training", 12.0)), 80, height).plain


def test_a_program_is_called_as_the_users_shell_finds_it(monkeypatch, tmp_path):
    """By name in an activated environment, else by its path relative to the current directory."""
    programs = Path(sys.executable).parent
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin")
    assert program("spreeze") == "spreeze"
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program("spreeze") == str(programs / "spreeze")
    monkeypatch.chdir(programs.parent)
    assert program("spreeze") == "bin/spreeze"
    assert subprocess.run([program("spreeze"), "--version"], check=True, timeout=60).returncode == 0
    assert program("no such program") == "no such program"


def test_next_commands_are_only_those_that_have_something_to_work_on(monkeypatch):
    """Without a policy nothing can be played, without a checkpoint nothing resumed; blanks are quoted."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin")
    assert next_commands("runs/a b", policy=False, resume="") == [
        "run folder:     runs/a b",
        "its page:       spreeze view 'runs/a b'",
        "curves:         tensorboard --logdir 'runs/a b'",
    ]
    go_on = "spreeze-launch --resume runs/a"
    assert next_commands("runs/a", policy=True, resume=go_on) == [
        "run folder:     runs/a",
        "watch it:       spreeze play runs/a",
        "evaluate it:    spreeze eval runs/a",
        'in Python:      from spreeze_zmq import Policy; policy = Policy.load("runs/a")',
        "train on:       spreeze-launch --resume runs/a",
        "its page:       spreeze view runs/a",
        "curves:         tensorboard --logdir runs/a",
    ]


def test_next_commands_say_what_must_be_trusted_where_the_run_left_no_mark(monkeypatch):
    """And where that is, unless it is the current directory."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin")
    trust = {"policy": True, "resume": "", "trust": ("mine", "a.b")}
    assert next_commands("runs/a", **trust)[1:4] == [
        "watch it:       spreeze play runs/a --trust mine --trust a.b",
        "evaluate it:    spreeze eval runs/a --trust mine --trust a.b",
        "in Python:      from spreeze_zmq import Policy; "
        "policy = Policy.load(\"runs/a\", trust=['mine', 'a.b'])",
    ]
    elsewhere = next_commands("runs/a", **trust, import_from="/my code")
    assert elsewhere[2:4] == [
        "evaluate it:    PYTHONPATH='/my code' spreeze eval runs/a --trust mine --trust a.b",
        'in Python:      import sys; sys.path.append("/my code"); from spreeze_zmq import Policy; '
        "policy = Policy.load(\"runs/a\", trust=['mine', 'a.b'])",
    ]


def test_the_status_needs_neither_numpy_nor_torch_nor_zmq():
    """The launcher starts at once."""
    code = "import sys, spreeze_zmq.screen.terminal.ending; "
    code += "print([name for name in ('numpy', 'torch', 'zmq') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout == "[]\n"


def test_samplers_without_rows_have_a_line_of_their_own():
    """Of a thousand the worst are told apart, and the rest in one line with their mean and sums."""
    run = Recorded("halfcheetah")
    for index in range(1000):
        name = f"sampler-{run.record.plan.components['sampler'].count.maximum + index}"
        figures = report("sampler", index, (0.25, 0.0, 0.75), name=name)
        run.record.take_hello(name, 7, figures, 1.0)
    text = shown(run.status("training", 2.0), height=60)
    (line,) = [line for line in text.splitlines() if line.startswith("950 samplers")]
    assert "25% busy" in line
    assert "75% starved" in line
