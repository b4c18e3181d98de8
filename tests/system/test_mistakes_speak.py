"""A stranger's sampler makes one mistake at a time in a real run: what is said, where, and how it ends."""

import re
import time
from pathlib import Path

import pytest

from tests.system.conftest import LIGHT

STRANGER = Path(__file__).parent / "stranger"
COMPONENTS = Path(__file__).parents[2] / "components"
SHORT = (
    *(
        "run.stop.return=1000",
        "run.stop.env_steps=20000",
        "run.stop.minutes=10",
        "components.sampler.count=1",
    ),
    *("algorithm.learning_starts=64", "components.broker.heartbeat_timeout_s=4", *LIGHT),
    *("components.sampler.start_timeout_s=60", "components.sampler.max_restarts=0"),
    "components.sampler.stop_grace_s=2",
)
#: What must be on the screen within as many statuses of the run, which come twice a second: on a busy machine
#: they come later, as everything does.
AT_ONCE = 10

#: Mistake -> word of the rule, what the screen says, the exit code, whether nothing gets through.
MISTAKES = {
    "wrong dtype": ("wrong_dtype", r"rollout\.reward is float64, expected float32", 1),
    "[T] for [T+1]": (
        "wrong_shape",
        r"obs has shape \(16, 4, 4\), expected \(17, 4\) to lead it",
        1,
    ),
    "missing field": ("missing_field", r"rollout has no field 'num_envs'", 1),
    "unordered index": ("bad_final_index", r"(\d) indices do not name, in order, the \1 steps that ended", 0),
    "version 2": ("unknown_version", r"protocol 2, this end speaks 1", 1),
    "no heartbeat": ("no_report", r"sampler-0: no report has come for 3 s, expected two a second", 1),
    "report without a field": ("missing_field", r"report has no field 'pid'", 1),
    "no hello": ("no_hello", r"sampler-0: it pushes rollouts, but no hello has come from it", 1),
    "wrong width": ("misfit", r"obs is \(5,\) for each step, expected \(4,\)", 1),
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
    *("version 2", "produced off", "NaN reward", "NaN observation"),
)
#: Mistakes that do not keep all messages of a kind from getting through.
SOME_GET_THROUGH = ("unordered index", "no heartbeat", "no hello", "deaf")


def stranger(launch, mistake):
    """A run with the stranger's sampler."""
    options = [f"components.sampler.use={STRANGER}", f"components.sampler.mistake={mistake!r}"]
    if mistake == "no hello":  # told once learners have its rollouts, which may take them long to load
        options += ["components.sampler.start_timeout_s=12", "run.stop.env_steps=10000000"]
    if mistake == "version 2":  # until then another may have used its name
        options += ["components.sampler.start_timeout_s=12"]
    if mistake == "deaf":  # all that it does is asked at the end
        options += ["run.stop.env_steps=3000"]
    if mistake in ("no heartbeat", "report without a field"):  # its rollouts get through until it is told
        options += ["run.stop.env_steps=10000000"]
    sets = [word for setting in (*SHORT, *options) for word in ("--set", setting)]
    return launch(*sets, "--without", "evaluator", topology="cartpole_dqn")


def statuses_until_seen(run, pattern):
    """Statuses from the first mistake, which the stranger's log shows, to the last look at the screen without
    the line: those that come while this process is held up do not count.
    """

    def statuses():
        journal = run.folder / "metrics.jsonl"
        return journal.read_text().count('"kind": "status"') if journal.exists() else 0

    log = run.folder / "logs" / "sampler-0.log"
    before, last, until_s = None, 0, time.monotonic() + 120
    while time.monotonic() < until_s:
        ended = run.launcher.poll() is not None
        is_seen = re.search(pattern, run.output.read_text())
        if before is None and log.exists() and "mistake at " in log.read_text():
            before = last = statuses()
        if is_seen:
            assert before is not None, run.said()
            return last - before
        if ended:
            break
        last = statuses()
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not on the screen:\n{run.said()}")


@pytest.mark.long("some mistakes show only after seconds of silence")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "mistake",
    [pytest.param(one, marks=[pytest.mark.thorough] if one in ALIKE else []) for one in MISTAKES],
)
def test_a_mistake_is_named_at_once(launch, mistake):
    """On the screen within ten statuses, in the summary, in the stranger's own log, and in the exit code. A
    sampler that only does not end when it should trains as any, and nothing of it is refused.
    """
    word, said, code = MISTAKES[mistake]
    run = stranger(launch, mistake)
    assert statuses_until_seen(run, said) <= AT_ONCE, run.said()
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
    if mistake == "deaf":  # else the others would prove nothing
        assert summary["refusals"] == []
        assert samples["received"] > 1000
        assert summary["critic_updates"] > 0
        assert {failure["name"] for failure in summary["failures"]} <= {"sampler-0"}
    assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    assert samples["in_flight"] == 0
    assert "Traceback" not in screen


#: A critic-learner that publishes its numbers in another order, and says so by its layout.
SCRAMBLES = """
import sys
from spreeze_zmq.component import run
from spreeze_zmq.components.critic_learner.__main__ import main
from spreeze_zmq.learner.publication import Outlet
from spreeze_zmq.wire import Message

right = Outlet._critics


def critics(self, *about, **more):
    def make(weights):
        message = right(self, *about, **more)(weights)
        parameters = message.arrays["parameters"][::-1].copy()
        return Message("critic", {**message.fields, "layout": "feedfacefeedface"}, {"parameters": parameters})

    return make


Outlet._critics = critics
sys.exit(run("critic_learner", main))
"""


@pytest.mark.thorough
def test_half_a_pair_of_another_packing_ends_the_run(launch, tmp_path):
    """Its last line names that half, both layouts and what to do; exit code 1, and nothing was trained."""
    (tmp_path / "main.py").write_text(SCRAMBLES)
    about = (COMPONENTS / "critic_learner" / "component.toml").read_text()
    command = 'command = ["python", "{folder}/main.py"]'
    (tmp_path / "component.toml").write_text(re.sub(r"^command = .*$", command, about, flags=re.MULTILINE))
    options = (f"components.critic_learner.use={tmp_path}", "components.sampler.count=1", *LIGHT)
    sets = [word for setting in options for word in ("--set", setting)]
    run = launch(*sets, "--without", "evaluator")
    assert run.end() == 1, run.said()
    last = run.output.read_text().strip().splitlines()[-1]
    said = (
        r"critic_learner-0: actor_learner-0 refused .* critics packed as layout 'feedfacefeedface', expected"
    )
    assert re.match(said, last), last
    assert last.endswith("; none gets through")
    assert run.summary()["actor_updates"] == 0
