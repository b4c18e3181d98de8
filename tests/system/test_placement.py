"""A learner on machines that join, as far as one machine shows it: each has a folder of its own, over tcp."""

import itertools
import json
import os
import signal

import pytest

from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.wire import decode
from spreeze_zmq.wire.channels import RecordingReader
from tests.system.conftest import NAPPING, adds_up
from tests.unit.supervisor.lives import still_running, words_of

ACTOR = "actor_learner-0"
#: The critic-learner here keeps every policy that it got.
RECORDED = ("--record", "critic_learner")
#: A checkpoint every three seconds.
ARGUMENTS = (
    *("--listen", "127.0.0.1", "--set", "placement.actor_learner=node"),
    *("--set", "run.checkpoint_minutes=0.05", "--set", "components.sampler.count=1", *NAPPING["pendulum"]),
    *("--set", "run.stop.minutes=10", "--set", "run.stop.return=none"),
)


def actor(machine):
    """A machine's actor-learner; None where it runs none."""
    found = (each for each in machine.processes() if "actor_learner" in " ".join(words_of(each)))
    return next(found, None)


@pytest.fixture
def machine(join):
    """Has a machine join a run, without samplers, and waits until it has."""

    def joined(run):
        made = join(run, "--samplers", "0")
        run.until(lambda: "joined" in made.said(), "a machine")
        return made

    return joined


class Story:
    """What a run has completed by now."""

    def __init__(self, run):
        self.run, self.completed = run, set()

    def checkpoints(self, more):
        """Wait for further complete checkpoints."""
        wanted = len(self.completed) + more
        self.run.until(lambda: len(self._look()) >= wanted, f"{more} more checkpoints", 120)

    def _look(self):
        manifests = self.run.folder.glob("checkpoints/*/MANIFEST.json")
        self.completed |= {path.parent.name for path in manifests}
        return self.completed


def lives(run):
    """The versions that each life of the actor-learner has published, in their order."""
    found = {}
    for path in (run.folder / "recordings").glob("critic_learner-0*"):
        for entry in RecordingReader(path).entries():
            if entry.channel == "policy" and not entry.sent:
                message = decode(entry.frames)
                found.setdefault(message.incarnation, []).append(message.fields["version"])
    return list(found.values())


def ends_well(run):
    """Ctrl-C: exit code 0, every sample accounted for, nothing left."""
    run.interrupt()
    assert run.end() == 0, run.said()
    summary = run.summary()
    assert all(map(adds_up, summary["samples_by_channel"].values()))
    assert all(one["in_flight"] == 0 for one in summary["samples_by_channel"].values())
    assert run.leftovers() == []
    return summary


@pytest.mark.thorough
@pytest.mark.long("a learner starts four times, one after another")
def test_the_actor_learner_runs_on_one_machine_after_another(launch, machine, tmp_path):
    """On the first it is killed and comes back with its replay; with that machine it goes to the second, and
    on a third one another run goes on. All their checkpoints are complete here; no version is given twice.
    """
    run = launch(*ARGUMENTS, *RECORDED)
    story, first = Story(run), machine(run)
    run.until(lambda: actor(first), "the actor-learner")
    second = machine(run)
    story.checkpoints(1)
    actor(first).kill()
    run.until(lambda: f"{ACTOR}: was killed by SIGKILL" in run.output.read_text(), "its end")
    run.until(lambda: len(lives(run)) == 2, "its second life", 90)
    story.checkpoints(1)
    processes = first.processes()
    first.half.send_signal(signal.SIGTERM)
    assert still_running(processes, 12) == []
    run.until(lambda: actor(second), "the actor-learner on the other machine")
    run.until(lambda: len(lives(run)) == 3, "its third life", 90)
    story.checkpoints(2)
    processes = second.processes()
    summary = ends_well(run)
    assert still_running(processes, 12) == []
    assert second.half.wait(12) == 0
    assert (
        "transitions outlived the process before this one"
        in (run.folder / "logs" / f"{ACTOR}.log").read_text()
    )
    assert Contestant.read(run.folder / "policy.safetensors").final
    more = launch(*ARGUMENTS, *RECORDED, "--resume", str(run.folder))
    third = machine(more)
    more.until(lambda: actor(third), "the actor-learner")
    Story(more).checkpoints(1)
    after = ends_well(more)
    assert after["resumed"]
    versions = lives(run) + lives(more)
    assert len(versions) == 4
    for one, following in itertools.pairwise(versions):
        assert one == sorted(one)
        assert max(one) < min(following)
    assert summary["num_failures"] == 1


@pytest.mark.thorough
@pytest.mark.long("a learner on another machine starts")
def test_a_last_checkpoint_that_is_incomplete_is_said(launch, machine):
    """As a learner's machine stands still at the end: in the last line, in summary.json, by exit code 1."""
    run = launch(*ARGUMENTS)
    story, first = Story(run), machine(run)
    story.checkpoints(1)
    for process in (first.half, *first.processes()):
        os.kill(process.pid, signal.SIGSTOP)
    run.interrupt()
    assert run.end() == 1, run.said()
    said = "the last checkpoint is incomplete: no part has come from actor_learner; --resume goes on from"
    assert run.output.read_text().splitlines()[-1].startswith(said)
    assert run.summary()["unfinished_checkpoint"] == ["actor_learner"]
    for process in (*first.processes(), first.half):
        os.kill(process.pid, signal.SIGCONT)
    assert first.half.wait(30) in (0, 3)


@pytest.mark.thorough
@pytest.mark.long("learners start twice, one after another")
def test_all_learners_and_the_evaluator_move_together(launch, machine):
    """From a machine that is killed to another that joins when the run waits for it."""
    others = ("critic_learner", "evaluator")
    more = (word for role in others for word in ("--set", f"placement.{role}=node"))
    run = launch(*ARGUMENTS, *more)
    story, first = Story(run), machine(run)
    story.checkpoints(2)
    processes = first.processes()
    first.half.kill()
    assert still_running(processes, 12) == []
    run.until(lambda: run.output.read_text().count(f"{ACTOR} waits for a machine") == 2, "that it waits")
    before = run.summary()["critic_updates"]
    machine(run)
    run.until(lambda: run.summary()["critic_updates"] > before + 20, "that it goes on", 120)
    story.checkpoints(1)
    summary = ends_well(run)
    assert summary["num_failures"] == 0
    assert "nan" not in json.dumps(summary).lower()
