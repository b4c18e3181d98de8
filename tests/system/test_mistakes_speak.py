"""A stranger's sampler makes one mistake at a time in a real run: what is said, where, and how it ends."""

import re
import time
from pathlib import Path

import pytest

STRANGER = Path(__file__).parent / "stranger"
SHORT = (
    *("run.stop.return=0", "run.stop.env_steps=20000", "run.stop.minutes=1", "components.sampler.count=1"),
    *("algorithm.learning_starts=64", "components.broker.heartbeat_timeout_s=4"),
    *("components.sampler.start_timeout_s=5", "components.sampler.max_restarts=0"),
    "components.sampler.stop_grace_s=2",
)
#: What must be on the screen within this long.
AT_ONCE_S = 5.0

#: Mistake -> word of the rule, what the screen says, the exit code, whether nothing gets through.
MISTAKES = {
    "wrong dtype": ("wrong_dtype", r"rollout\.reward is float64, expected float32", 1),
    "[T] for [T+1]": (
        "wrong_shape",
        r"obs has shape \(16, 4, 3\), expected \(17, 4\) to lead it",
        1,
    ),
    "missing field": ("missing_field", r"rollout has no field 'num_envs'", 1),
    "unordered index": ("bad_final_index", r"4 indices do not name, in order, the 4 steps that ended", 0),
    "version 2": ("unknown_version", r"protocol 2, this end speaks 1", 1),
    "no heartbeat": ("no_report", r"sampler-0: no report has come for 3 s, expected two a second", 1),
    "report without a field": ("missing_field", r"report has no field 'pid'", 1),
    "no hello": ("no_hello", r"sampler-0: it pushes rollouts, but no hello has come from it", 1),
    "wrong width": ("misfit", r"obs is \(4,\) for each step, expected \(3,\)", 1),
    "produced off": ("unordered", r"produced is 16, expected at least the 64 transitions of the rollout", 1),
    "version from the future": (
        "unknown_policy",
        r"policy_version is 1\d{6}, the newest published is \d+",
        1,
    ),
    "deaf": ("", r"sampler-0: still there 2 s after SIGTERM, when it should end; killed", 0),
    "NaN reward": ("not_finite", r"rollout\.reward holds nan at \[3, 1\], expected a finite number", 1),
    "NaN observation": ("not_finite", r"rollout\.obs holds nan at \[5, 2, 0\], expected a finite number", 1),
}
#: Mistakes that take the same road as one of the others.
ALIKE = (
    *("[T] for [T+1]", "missing field", "unordered index", "report without a field", "wrong width"),
    *("produced off", "NaN observation"),
)
#: Mistakes that do not keep all messages of a kind from getting through.
SOME_GET_THROUGH = ("unordered index", "no heartbeat", "no hello", "deaf")


def stranger(launch, mistake):
    """A run of the pendulum with the stranger's sampler."""
    options = [f"components.sampler.use={STRANGER}", f"components.sampler.mistake={mistake!r}"]
    if mistake == "no hello":  # told once learners have its rollouts, which may take them long to load
        options += ["components.sampler.start_timeout_s=12", "run.stop.env_steps=10000000"]
    if mistake == "no heartbeat":  # told after three seconds, in which a fast machine does all that is asked
        options += ["run.stop.env_steps=200000"]
    sets = [word for setting in (*SHORT, *options) for word in ("--set", setting)]
    return launch(*sets, "--without", "visualizer")


def seen_after_s(run, pattern):
    """Seconds from the first mistake, which the stranger's log dates, to the line on the screen."""
    log = run.folder / "logs" / "sampler-0.log"
    made_s = None
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if made_s is None and log.exists() and (made := re.search(r"mistake at (\S+)", log.read_text())):
            made_s = float(made[1])
        if re.search(pattern, run.output.read_text()):
            assert made_s is not None, run.said()
            return time.time() - made_s
        if run.launcher.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not on the screen:\n{run.said()}")


def test_the_stranger_without_a_mistake_trains(launch):
    """Else the others would prove nothing: nothing is refused, all is accounted for, exit code 0."""
    run = stranger(launch, "none")
    assert run.end() == 0
    summary = run.summary()
    assert summary["refusals"] == []
    assert summary["samples"]["received"] > 1000
    assert summary["samples"]["in_flight"] == 0
    assert summary["critic_updates"] > 0
    assert summary["failures"] == []


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(one, marks=[pytest.mark.thorough] if one in ALIKE else []) for one in MISTAKES],
)
def test_a_mistake_is_named_at_once(launch, mistake):
    """On the screen within five seconds, in the summary, in the stranger's own log, and in the exit code."""
    word, said, code = MISTAKES[mistake]
    run = stranger(launch, mistake)
    assert seen_after_s(run, said) <= AT_ONCE_S, run.said()
    assert run.end() == code, run.said()
    summary, screen = run.summary(), run.output.read_text()
    if word:
        rows = [row for row in summary["refusals"] if row["word"] == word]
        assert rows, summary["refusals"]
        assert {row["sender"] for row in rows} == {"sampler-0"}
        assert re.search(said, rows[0]["line"])
        assert re.search(said, (run.folder / "logs" / "sampler-0.log").read_text())
        assert '"kind": "refused"' in (run.folder / "metrics.jsonl").read_text()
    if mistake not in SOME_GET_THROUGH:
        last = screen.strip().splitlines()[-1]
        assert last.startswith("sampler-0: "), screen
        assert last.endswith("; none gets through"), screen
        assert summary["exit_reason"] == last
    samples = summary["samples"]
    assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    assert samples["in_flight"] == 0
    assert "Traceback" not in screen
