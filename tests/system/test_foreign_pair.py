"""A pair of learners that was written from PROTOCOL.md alone is killed, and resumed in another run."""

from pathlib import Path

import numpy as np
import pytest

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.wire import channels
from tests.system.conftest import LIGHT

PAIR = Path(__file__).parent / "pair"
WORDS = (
    *(f"components.{part}_learner.use={PAIR / part}_learner" for part in ("critic", "actor")),
    *("components.sampler.count=1", "run.checkpoint_minutes=0.03", "run.stop.minutes=5"),
    *("algorithm.learning_starts=500", *LIGHT),
)


class Policies:
    """The policies that a run publishes: lives of the publisher, and version -> parameters."""

    def __init__(self, run):
        run.until((run.folder / "run.json").exists, "run.json")
        plan = Plan.read(run.folder / "run.json")
        self.end = channels.open_channel(plan.channels["policy"], "sub", "test", 1)
        self.lives, self.given, self.twice = {}, {}, []

    def hear(self):
        """Take what has come; returns the lives."""
        while (message := self.end.receive()) is not None:
            version, given = message.fields["version"], message.arrays["parameters"].tobytes()
            self.lives.setdefault(message.incarnation, []).append(version)
            self.twice += [version] if self.given.setdefault(version, given) != given else []
        return self.lives

    def until_life(self, run, number, versions=20):
        """Wait for some policies of one life of the publisher; returns their versions."""

        def came():
            lives = list(self.hear().values())
            return lives[number] if len(lives) > number and len(lives[number]) >= versions else None

        return run.until(came, f"{versions} policies of life {number}")


@pytest.mark.long("a run, its kill, and the run that goes on")
def test_a_foreign_pair_goes_on_where_it_was(launch, native_layers):
    """Each half goes on from its part of the newest whole checkpoint, after a kill and in a resumed run; no
    version is given twice.
    """
    first = launch(*(word for key in WORDS for word in ("--set", key)))
    policies = Policies(first)
    policies.until_life(first, 0)
    first.until(lambda: latest(first.folder / "checkpoints"), "a checkpoint")
    first.kill("actor_learner-0")
    again = policies.until_life(first, 1)
    assert again[0] > max(next(iter(policies.lives.values())))
    first.kill("critic_learner-0")
    first.until(lambda: first.summary()["restarts"] == 2, "another critic-learner")
    policies.hear()  # what was under way; what follows is of critics of the next one
    policies.until_life(first, 1, len(again) + 20)
    first.interrupt()
    assert first.end() == 0, first.said()
    policies.end.close()
    saved = latest(first.folder / "checkpoints")
    kept = {part: np.load(saved.part(f"{part}_learner.npz"))["counts"] for part in ("critic", "actor")}
    assert kept["critic"][1] > 0 < kept["actor"][0]

    second = launch(
        *(word for key in (*WORDS, "run.stop.minutes=10") for word in ("--set", key)),
        *("--resume", str(first.folder)),
    )
    later = Policies(second)
    assert later.until_life(second, 0)[0] >= kept["actor"][0]
    second.interrupt()
    assert second.end() == 0, second.said()
    later.end.close()
    assert not policies.twice + later.twice
    summary = second.summary()
    assert summary["critic_updates"] > kept["critic"][1]
    assert summary["refusals"] == []
    samples = summary["samples"]
    assert samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
