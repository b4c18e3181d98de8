"""A disk that takes longer for a checkpoint than a process may be silent: the learner is heard meanwhile."""

import threading

import pytest
import torch

from spreeze_zmq.component import Component
from spreeze_zmq.learner import Learner
from spreeze_zmq.learner.at_hand import random_rollout
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.replay import Replay
from spreeze_zmq.run import checkpoint
from spreeze_zmq.run.checkpoint import Part, complete

DEADLINE_S = 20.0
PLACES = {
    "the state is written": (torch, "save"),
    "the replay is written": (Replay, "save"),
    "a file is verified": (checkpoint, "_crc32"),
    "the state is read": (torch, "load"),
    "the replay is read": (Replay, "load"),
}


class Heard:
    """Whether two reports have been sent since it was made or cleared, of all processes in this one."""

    def __init__(self, monkeypatch):
        self.count, self.two, self.parts = 0, threading.Event(), []
        report = Component.report

        def counting(component, kind, fields, *rest, **others):
            self.count += kind == "report"
            if self.count >= 2:
                self.two.set()
            if kind == "part":
                self.parts.append(fields["part"])
            report(component, kind, fields, *rest, **others)

        monkeypatch.setattr(Component, "report", counting)

    def slowed(self, work):
        """The same work on a disk that is done when two reports have been sent since it began."""

        def slow(*given, **named):
            self.count = 0
            self.two.clear()
            assert self.two.wait(DEADLINE_S), "silent"
            return work(*given, **named)

        return slow


@pytest.mark.parametrize("peers", [["algorithm.hidden_sizes=[8]", "run.save_replay=true"]], indirect=True)
@pytest.mark.parametrize("place", PLACES)
def test_a_learner_on_a_slow_disk_is_heard_while(place, peers, monkeypatch):
    """Else it would be killed in the middle, and no checkpoint be complete. What was written comes back."""
    heard, (owner, name) = Heard(monkeypatch), PLACES[place]
    monkeypatch.setattr(owner, name, heard.slowed(getattr(owner, name)))
    learner = Learner(Component("critic_learner", peers.plan, 0))
    replay, weights = learner.experience.replay, learner.half.weights.clone()
    vault = Vault(learner.component, learner.state, replay, lambda: True)
    replay.add(random_rollout(learner.component.environment))
    size = len(replay)
    vault._on_request({"folder": "1"})
    vault.serve()
    parts = [Part.from_dict(fields) for fields in heard.parts[0].values()]
    complete(peers.folder.checkpoints / "1", parts, {})
    learner.half.weights.zero_()
    replay.ring.num_added = 0
    learner.restore(vault.restore())
    assert torch.equal(learner.half.weights, weights)
    assert len(replay) == size > 0
    for channel in learner.component._channels.values():
        channel.close()
