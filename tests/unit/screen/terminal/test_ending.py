"""The last words of a run, and the commands that use it."""

import subprocess
import sys
from pathlib import Path

from spreeze_zmq.base.machine import program
from spreeze_zmq.broker.problems import MISSING, NO_REPORT
from spreeze_zmq.screen.terminal.ending import next_commands, outcome
from spreeze_zmq.screen.terminal.numbers import decimal, memory
from spreeze_zmq.screen.terminal.words import ended_by, plain_line
from tests.unit.screen.terminal.drawn import LARGE, shown
from tests.unit.screen.terminal.recorded import Recorded, evaluate, report


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
    ]
    assert outcome({**summary, "wall_s": 864_000.0}, "")[0].startswith("ended after 240:00:00 and ")
    summary["best"]["final"] = True
    assert outcome(summary, "return -176.0 >= -200")[1:] == [
        "best return -152.3 ± 70.0 in 30 fresh episodes, at 27,000 env steps",
        "its mean lies between -187.3 and -117.3 (95 % by Student's t)",
    ]
    summary["best"] |= {"num_episodes": 1, "std_return": 0.0}
    assert outcome(summary, "")[1].startswith("best return -152.3 in 1 fresh")


def test_the_last_words_say_how_busy_each_gpu_was():
    """By the learner that uses it; a learner on a CPU has its share of the cores."""
    run = Recorded()
    gpu = {"busy": 0.95, "busy_in_all": 0.618, "memory_bytes": 2e9}
    run.record.take_report("critic_learner-0", 1, report("critic_learner", 1, device=gpu), 9.0)
    run.record.take_report("actor_learner-0", 2, report("actor_learner", 2, device={"busy": 0.0}), 9.0)
    said = outcome(run.record.summary("", 9.31, final=True), "minutes 0.50 >= 0.5")
    assert [line for line in said if "GPU" in line] == [
        "the GPU of critic_learner-0 since its first update: 62% in updates"
    ]


def test_the_last_words_say_where_all_episodes_were_the_same():
    """An evaluator leaves the interval out then, and of returns that differ where it has none."""
    run = Recorded()
    evaluate(run.record, 8.9, 27_000, -152.34, 0.0)
    summary = run.record.summary("", 9.31, final=True)
    best = summary["best"]
    for interval, spread, is_one in ((True, 0.0, False), (False, 0.0, True), (False, 9.0, False)):
        best |= {"std_return": spread, "final": True}
        summary["best"] = best if interval else {k: v for k, v in best.items() if "interval" not in k}
        said = "\n".join(outcome(summary, "minutes 0.50 >= 0.5"))
        assert ("all 30 episodes were the same" in said) is is_one
        assert ("its mean lies between" in said) is interval


def test_silence_is_no_refused_message():
    """It has a line of its own, and no part in the sum, which has the rows that a status does not show."""
    run = Recorded()
    run.record.refusals.miss("sampler-0", NO_REPORT, 4.0)
    silence = f"sampler-0: {MISSING[NO_REPORT]}"
    assert silence in outcome(run.record.summary("", 5.0, final=True), "minutes 1")
    assert run.record.disturbances == 0
    rows = [
        {"sender": f"sampler-{n}", "kind": "rollout", "word": "wrong_dtype", "count": 3} for n in range(20)
    ]
    run.record.refusals.take("critic_learner-0", rows, 5.0)
    words = outcome(run.record.summary("", 6.0, final=True), "minutes 1")
    assert [line.partition(";")[0] for line in words[1:3]] == ["refused 60 in all", silence]
    assert " messages_refused=60 " in plain_line(run.status("training", 6.0), {})
    assert run.record.disturbances == 60


def test_the_last_words_say_that_time_has_cut_the_episodes():
    """Of these no interval is stated, nor that all were the same where all were cut after one time."""
    run = Recorded()
    evaluate(run.record, 8.9, 27_000, 67.0, 0.0)
    summary = run.record.summary("", 9.31, final=True)
    for interval in (True, False):
        best = {k: v for k, v in summary["best"].items() if interval or "interval" not in k}
        summary["best"] = {**best, "timed_out": True, "num_truncated": 30}
        assert outcome(summary, "minutes 0.50 >= 0.5")[1:] == [
            "best return 67.0 ± 0.0 in 30 episodes, which also chose it",
            "of these episodes, 30 of 30 cut by time before their end: it compares with no other score",
        ]


def test_the_last_words_state_one_return():
    """That of the saved policy; the one of the moment at which the run ended only where they disagree."""
    assert ended_by("return -176.0 >= -200", -143.7) == "return -200 reached"
    assert ended_by("return -176.0 >= -200", -205.0) == "return -176.0 >= -200"
    large = Recorded()
    evaluate(large.record, 8.9, 27_000, 1_234_568.0, 70.0)
    assert ended_by(large.record.evaluations.reached(1_234_567, 30), 1_234_568.0) == "return 1234567 reached"
    assert ended_by("env_steps 1500672 >= 1500000", None) == "1,500,000 env steps reached"
    assert ended_by("minutes 0.50 >= 0.5", -143.7) == "0.5 minutes reached"
    assert ended_by("success 0.95 >= target", None) == "success 0.95 >= target"
    assert ended_by("interrupted by the user", -143.7) == "interrupted by the user"


def test_a_few_bytes_are_told_from_none():
    """As of a link that carries little."""
    assert [memory(size) for size in (0.0, 40.4, 999.4, 1e3, 1.5e9)] == [
        "0 B",
        "40 B",
        "999 B",
        "1 kB",
        "1.5 GB",
    ]


def test_a_small_return_is_told_from_zero():
    """As those of sparse or scaled rewards are."""
    values = (1e20, -12345.6, -1234.56, 12.34, 0.8333, -0.0421, 0.000188, 0.0, -0.0, None)
    shown_as = ["1.00e+20", "-12,346", "-1234.6", "12.3", "0.83", "-0.042", "0.00019", "0.0", "0.0", "-"]
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
