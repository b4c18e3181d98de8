"""The display: a frame that fits any terminal, greppable lines elsewhere, cheap to draw."""

import subprocess
import sys

import numpy as np
import pytest
from rich.cells import cell_len

from spreeze_zmq.screen.terminal.chart import Returns, curve
from spreeze_zmq.screen.terminal.drawing import frame
from spreeze_zmq.screen.terminal.words import RUNNING, plain_line, progress
from tests.unit.screen.terminal.drawn import LARGE, STAGES, STARTING, scene, shown
from tests.unit.screen.terminal.recorded import Recorded, evaluate, report


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
    status = run.status("training", 9.0)
    [row] = [row for row in shown(status, width=80).splitlines() if "desk2" in row]
    assert row.split(maxsplit=1)[1] == "64 samplers, 0.0 env steps/s, 63.5 of 64 cores busy, 120.0 GB"
    assert "desk2" not in shown({**status, "state": "ended"}, width=80), "it has left"


def test_the_last_frame_has_no_rates():
    """The learners have left while the last episodes were played."""
    assert "1,123,456,789  1,230,123 /s   replay ratio" in shown(LARGE)
    assert "learners use" in shown(LARGE)
    last = shown({**LARGE, "state": "ended"})
    row = next(row for row in last.splitlines() if row.startswith("env steps"))
    assert row.split("replay")[0].split() == ["env", "steps", "1,123,456,789"]
    assert not any(words in last for words in (" /s", "learners use", "busy"))


def test_a_small_replay_ratio_is_told_from_none():
    """As of thousands of environments on a GPU; the page has it so, too."""
    status = {**LARGE, "replay_ratio": {"target": 0.002, "measured": 0.00194}}
    assert "replay ratio 0.0019 of 0.002" in shown(status)
    assert " replay_ratio=0.0019 policy_lag=" in plain_line(status, {})


def test_data_alone_has_neither_a_replay_ratio_nor_env_steps():
    """Nothing is sampled that it could be kept to, or that a score could be after."""
    look = {**LARGE["evaluation"]["last"], "env_steps": 0}
    status = {**LARGE, "env_steps": 0, "evaluation": {"last": look, "best": look}}
    status |= {"replay_ratio": {"target": None, "measured": None}}
    said = shown(status)
    assert "replay ratio" not in said
    assert "at 0 steps" not in said
    assert " replay_ratio=- policy_lag=" in plain_line(status, {})


def test_a_slow_rate_is_none_of_zero():
    """As of an environment that takes seconds for a step, in a line and in the frame."""
    slow = {**LARGE, "env_steps_per_s": 0.4, "critic_updates_per_s": 0.0432}
    assert " env_steps_per_s=0.4 " in (line := plain_line(slow, {}))
    assert " critic_updates_per_s=0.0432 " in line
    assert " 0.0432 /s" in shown(slow)
    assert " env_steps_per_s=0 " in plain_line({**LARGE, "env_steps_per_s": 0.0}, {})


def test_failures_of_the_environment_have_one_line():
    """Their count and the newest."""
    run = Recorded()
    for step in (7, 120):
        fields = {"name": "sampler-0", "summary": f"a reward is nan (step {step})", "traceback": ""}
        run.record.take_failure("sampler-0", fields, 3.0)
    assert "2 failures, the newest: sampler-0: a reward is nan (step 120)" in shown(
        run.status("training", 9.0), 80, 24
    )


def test_a_score_says_which_of_its_episodes_time_has_cut():
    """Their mean is no return: the policy may have gone on for ever."""
    run = Recorded()
    evaluate(run.record, 8.9, 27_000, 600.0, 3.0)
    for one in run.record.evaluations.all:
        one |= {"timed_out": True, "num_truncated": 4}
    rows = shown(run.status("training", 9.0), 80, 24).splitlines()
    assert "evaluation      600.0 ± 3.00 4 of 30 cut by time, at 27,000 steps, 0:08" in rows
    assert "best            600.0 ± 3.00 4 of 30 cut by time, at 27,000 steps" in rows


def test_the_return_in_training_says_of_how_many_episodes_it_is():
    """As the scores beside it; the count is of the runs before, too. A broker of an older release, which does
    not say of how many, is not taken at its count.
    """
    run = Recorded()
    run.record.resume({"t_s": 8.0, "counts": {"env_steps": 1000, "episodes": 300.0}})
    status = run.status("training", 9.0)
    assert "in training     none has ended since the run went on, 300 before" in shown(status)
    run.record.episodes.take(np.full(5, -100.0, np.float32), np.full(5, 200, np.int32))
    status = run.status("training", 9.0)
    assert "in training     -100.0 n=5 of 305, of 200 steps" in shown(status)
    del status["episodes"]["num_in_means"]
    assert "in training     -100.0 the last of 305, of 200 steps" in shown(status)
    run = Recorded()
    run.record.episodes.take(np.full(5, -100.0, np.float32), np.full(5, 200, np.int32))
    assert "in training     -100.0 n=5, of 200 steps" in shown(run.status("training", 9.0))


def test_one_episode_has_no_spread():
    """None is known of it."""
    run = Recorded()
    evaluate(run.record, 8.9, 27_000, 600.0, 0.0)
    for one in run.record.evaluations.all:
        one |= {"num_episodes": 1}
    assert "evaluation      600.0 n=1, at 27,000 steps, 0:08" in shown(run.status("training", 9.0), 80, 24)


@pytest.mark.parametrize("height", [3, 4, 6, 8])
def test_the_returns_are_the_last_to_go(height):
    """However low the terminal is."""
    text = shown(LARGE, 60, height)
    assert len(text.splitlines()) <= height
    assert "evaluation      5792.8 ± 88.2 n=30, at 1.1G steps, 10:00:00" in text
    assert "best            5792.8 ± 88.2 n=30, at 1.1G steps\n" in text
    assert "in training     -1234.6" in text


def test_a_large_run_reads_as_it_should():
    """Aligned, with all figures."""
    rows = shown(LARGE, 80, 23).splitlines()
    assert [row for row in rows if "│" not in row] == [
        "HalfCheetah-v5  sac  seed 1" + " " * 35 + "training  10:01:23",
        rows[1],
        "until return 10000 or 2G env steps or 1000G trained or 1000 min",
        "evaluation      5792.8 ± 88.2 n=30, at 1.1G steps, 10:00:00",
        "best            5792.8 ± 88.2 n=30, at 1.1G steps",
        "in training     -1234.6 n=100 of 1,123,456, of 1,000 steps",
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


def test_a_look_that_time_has_cut_is_drawn_only_until_there_is_a_whole_one():
    """Where each step costs, what was cut scores best; `spreeze compare` draws the same ones."""
    run, returns = Recorded(), Returns()
    for t_s, mean, is_cut in (
        (1.0, -10.0, 1),
        (2.0, -20.0, 1),
        (3.0, -90.0, 0),
        (4.0, -5.0, 1),
        (5.0, -80.0, 0),
    ):
        evaluate(run.record, t_s, 500, mean, 1.0)
        run.record.evaluations.all[-2] |= {"timed_out": bool(is_cut), "num_truncated": 4 * is_cut}
        returns.take(run.status("training", t_s))
        if t_s == 2.0:
            assert returns.points == [(1.0, -10.0), (2.0, -20.0)]
    assert returns.points == [(3.0, -90.0), (5.0, -80.0)]


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


def test_the_status_needs_neither_numpy_nor_torch_nor_zmq():
    """The launcher starts at once."""
    code = "import sys, spreeze_zmq.screen.terminal.ending; "
    code += "print([name for name in ('numpy', 'torch', 'zmq') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
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
