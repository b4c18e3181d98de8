"""The end of a run, as its broker decides it, also one that was started again in the middle of it."""

from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.checkpoint_request import MOST_S
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.broker.helm import LATE_S, Helm
from spreeze_zmq.broker.last_checkpoint import (
    COUNT_S,
    LAST_CHECKPOINT_S,
    LEARNERS_BACK_S,
    RECONNECTED_S,
    end_s,
)
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology
from spreeze_zmq.run.checkpoint import write_part
from spreeze_zmq.run.folder import RunFolder

REASON = "env_steps 1000 >= 1000"


class Steered:
    """A helm, and what it says to the processes."""

    def __init__(self, path, updates, *overrides):
        self.plan = plan = topology.load("pendulum", overrides)
        self.record, self.said = RunRecord(plan), []
        for role in plan.learning.learners:
            self.record.processes[f"{role}-0"] = ProcessRecord(role, 1, ready=True)
        self.record.learning.counts["critic_updates"] = updates
        self.stopped = []
        control = SimpleNamespace(publish=self.hear)
        notes = SimpleNamespace(**dict.fromkeys(("note", "publish", "refusals", "figures"), lambda *_: None))
        self.helm = Helm(plan, RunFolder(path), self.record, notes, control)

    def hear(self, message):
        """Note what is said, and whom a stop is for."""
        self.said.append(message.kind)
        self.stopped = message.fields.get("roles", self.stopped)

    def decide(self, now_s):
        """What it says at this time."""
        self.said.clear()
        self.helm.decide(now_s)
        return list(self.said)


def test_a_broker_that_is_killed_while_it_waits_for_the_last_checkpoint_asks_again(tmp_path):
    """Once the learners can hear it; only then does the run end, without it after a time."""
    steered = Steered(tmp_path, updates=5)
    steered.helm.restore(REASON, 100.0)
    assert steered.decide(100.1) == []
    asked_s = 100.0 + RECONNECTED_S
    assert steered.decide(asked_s) == ["checkpoint"]
    assert steered.helm.checkpoints.pending
    assert steered.decide(asked_s + LAST_CHECKPOINT_S - 0.1) == []
    assert steered.decide(asked_s + LAST_CHECKPOINT_S) == ["stop"]
    assert steered.helm.checkpoints.missing == ["critic_learner", "actor_learner"]


@pytest.mark.parametrize(("name", "ends"), [("actor_learner-0", True), ("sampler-0", False)])
def test_the_end_waits_for_no_part_of_a_learner_that_is_gone(tmp_path, name, ends):
    """The disk was full, say; with a whole replay a minute would pass."""
    steered = Steered(tmp_path, 5, "run.save_replay=true")
    steered.helm.lose(name, 90.0)  # while it trains nothing ends
    steered.helm.end(REASON, 100.0)
    assert steered.said[-1] == "checkpoint"
    assert steered.decide(100.5) == []
    steered.helm.lose(name, 101.0)
    assert steered.decide(101.0) == ["stop"] * ends


@pytest.mark.parametrize(
    ("override", "parts_s", "before_s"),
    [
        ("balance.mode=free", 5.0, 0.0),
        ("run.save_replay=true", 60.0, 0.0),
        ("balance.mode=lockstep", 60.0, COUNT_S),
    ],
)
def test_a_last_checkpoint_of_a_whole_replay_or_in_order_has_a_minute(tmp_path, override, parts_s, before_s):
    """However the run ends, here by request; who asked for the end waits longer than that."""
    steered = Steered(tmp_path, 5, override)
    steered.helm.end("the user", 100.0)
    if before_s:  # they write where they are
        assert steered.decide(100.0 + before_s) == ["checkpoint"]
    last_s = before_s + parts_s
    assert steered.decide(100.0 + last_s - 0.1) == []
    assert steered.decide(100.0 + last_s) == ["stop"]
    assert end_s(steered.plan) > last_s + RECONNECTED_S + LEARNERS_BACK_S


def test_the_stop_of_a_run_names_the_roles_that_the_launcher_has_stopped_already(tmp_path):
    """As after a second Ctrl-C while the last checkpoint is awaited: who comes late hears the last one."""
    steered = Steered(tmp_path, updates=0)
    steered.record.take_workers("sampler", 1, "as stated", 1.0)
    steered.record.take_stopping(["sampler", "critic_learner"], 1.0)
    steered.helm.exit_reason = REASON
    assert steered.decide(100.0) == ["stop"]
    assert steered.stopped == ["sampler", "critic_learner", "launcher"]


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_that_ends_as_its_broker_comes_back_has_its_last_checkpoint(tmp_path, asked):
    """Whether somebody ends it before that broker has decided anything, or a limit has passed meanwhile."""
    steered = Steered(tmp_path, updates=5)
    steered.record.stop_condition = lambda now_s: REASON
    steered.helm.restore("", 100.0)
    if asked:
        steered.helm.end("the user", 100.05)
    assert "checkpoint" not in steered.said + steered.decide(100.1)
    assert steered.decide(100.0 + RECONNECTED_S) == ["checkpoint"]
    assert steered.helm.exit_reason == ("the user" if asked else REASON)


@pytest.mark.parametrize("back", [True, False])
def test_a_run_that_ends_while_a_learner_starts_again_has_its_last_checkpoint(tmp_path, back):
    """Once that learner is back; without it the run says that it has none, as it would have ended well."""
    steered = Steered(tmp_path, updates=5)
    for role in ("critic_learner", "actor_learner"):
        steered.record.take_workers(role, 1, "as stated", 1.0)
    steered.record.lose("critic_learner-0", "was killed by SIGKILL")
    steered.record.learning.counts["env_steps"] = 9
    steered.helm.end("the user", 100.0)
    assert "checkpoint" not in steered.said + steered.decide(100.1)
    steered.record.processes["critic_learner-0"].gone = "" if back else "was killed by SIGKILL"
    assert steered.decide(101.0) == ["checkpoint"] * back
    assert steered.decide(100.0 + LEARNERS_BACK_S) == ["checkpoint"] * (not back)
    assert steered.helm.checkpoints.missing == ["critic_learner", "actor_learner"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_run_that_has_not_trained_ends_at_once(tmp_path, gone):
    """As it would have without a restart; and one whose learners have gone."""
    steered = Steered(tmp_path, updates=5 if gone else 0)
    for process in steered.record.processes.values():
        process.gone = "done" if gone else ""
    steered.helm.restore(REASON, 100.0)
    assert steered.decide(100.1) == ["stop"]


def test_a_checkpoint_that_takes_longer_than_the_interval_is_waited_for(tmp_path):
    """Once it is whole, the learners train for an interval before the next; if it never is, that comes."""
    steered = Steered(tmp_path, updates=5)
    helm, interval_s = steered.helm, 60 * steered.plan.run.checkpoint_minutes
    helm.balance = helm.end = lambda *about: None
    assert steered.decide(interval_s) == ["checkpoint"]
    folder = helm.checkpoints.pending
    for late_s in (0.0, LATE_S, 2 * LATE_S):
        assert steered.decide(2 * interval_s + late_s) == []
    assert [row.line for row in steered.record.requests.last] == [
        f"broker: no part of checkpoint {folder} has come from critic_learner and actor_learner within "
        "run.checkpoint_minutes = 5: the next one waits for it"
    ]
    (tmp_path / "checkpoints" / folder).mkdir(parents=True)
    for role in steered.plan.learning.learners:
        helm.checkpoints.take(role, {"folder": folder, "part": {}}, {})
    helm.saved(3 * interval_s)
    assert helm.checkpoints.pending == ""
    assert steered.decide(4 * interval_s - 1) == []
    assert steered.decide(4 * interval_s) == ["checkpoint"]
    assert steered.decide(4 * interval_s + MOST_S - 1) == []
    assert steered.decide(4 * interval_s + MOST_S) == ["checkpoint"]
    assert "is given up: no part has come from" in steered.record.requests.last[-1].line


def test_a_checkpoint_with_a_part_that_is_refused_is_waited_for_no_longer(tmp_path):
    """Its learner sends no other: the next one comes when it is due, with the reason why this one is none."""
    steered = Steered(tmp_path, 5)
    helm, interval_s = steered.helm, 60 * steered.plan.run.checkpoint_minutes
    helm.balance = helm.end = lambda *about: None
    assert steered.decide(interval_s) == ["checkpoint"]
    folder, name = helm.checkpoints.pending, "critic_learner.pt"
    part = write_part(tmp_path / "checkpoints" / folder, name, lambda path: path.write_bytes(b"all"))
    torn = {"folder": folder, "part": {name: {**part.to_dict(), "bytes": 4}}}
    helm.checkpoints.take("actor_learner", {"folder": folder, "part": {}}, {})
    with pytest.raises(WireError, match=name):
        helm.checkpoints.take("critic_learner", torn, {})
    assert steered.decide(2 * interval_s - 1) == []
    assert steered.decide(2 * interval_s) == ["checkpoint"]
    (row,) = steered.record.requests.last
    assert row.line.startswith(f"broker: checkpoint {folder} is given up: CheckpointError: ")
    assert name in row.line
    assert steered.decide(3 * interval_s + LATE_S) == []  # of the next one nothing is wrong
    assert steered.record.requests.last[-1].line.startswith("broker: no part of checkpoint ")


def test_a_learner_that_dies_twice_with_its_part_is_asked_again_at_once_only_once(tmp_path):
    """The second time the next checkpoint comes when it is due, and is not waited for by an hour."""
    steered = Steered(tmp_path, 5)
    helm, interval_s = steered.helm, 60 * steered.plan.run.checkpoint_minutes
    helm.balance = helm.end = lambda *about: None
    assert steered.decide(interval_s) == ["checkpoint"]
    steered.said.clear()
    for _ in range(2):
        helm.welcome("critic_learner", interval_s + 1)
    assert steered.said == ["checkpoint"]
    assert steered.decide(2 * interval_s) == []
    assert steered.decide(2 * interval_s + 1) == ["checkpoint"]
    said = "is given up: no part has come from critic_learner and actor_learner"
    assert said in steered.record.requests.last[-1].line


def test_a_checkpoint_that_is_due_waits_until_the_learners_hear_the_next_broker(tmp_path):
    """One that was asked for at once would be lost, and the next one come an interval later."""
    steered = Steered(tmp_path, updates=5)
    steered.helm.balance = steered.helm.end = lambda *about: None
    steered.helm.restore("", 100_000.0)
    assert steered.decide(100_000.1) == []
    assert steered.decide(100_000.0 + RECONNECTED_S) == ["checkpoint"]
