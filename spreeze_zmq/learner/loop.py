"""The loop of a learner: wait for what is missing, take it in, update, publish when due."""

from __future__ import annotations

from typing import Any, Protocol

from spreeze_zmq.component.component import Component
from spreeze_zmq.device import Work
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.publication import Cadence
from spreeze_zmq.learner.vault import SavedReplay, Vault
from spreeze_zmq.rollout import Rollout


class Learner(Protocol):
    """What either learner does when its turn in the loop comes."""

    intake: Intake
    cadence: Cadence
    work: Work

    @property
    def replay(self) -> SavedReplay:
        """What it keeps of the experience."""

    @property
    def may_update(self) -> bool:
        """Whether the other half and the balance allow one more update now."""

    @property
    def settled(self) -> bool:
        """Whether it has done all that the samples of this run allow."""

    def wait(self) -> None:
        """Wait on the sockets for what an update lacks; not at all where it lacks nothing."""

    def take_weights(self) -> None:
        """Adopt what the other half has published."""

    def take_rollouts(self) -> None:
        """Store what waits, as far as the balance allows."""

    def store(self, rollout: Rollout) -> None:
        """Keep one rollout."""

    def update(self) -> None:
        """Train on one batch."""

    def publish(self) -> None:
        """Send the weights."""

    def publish_if_due(self) -> None:
        """Send the weights where the clock, the count or whoever waits calls for it."""

    def state(self) -> dict[str, Any]:
        """Everything that a later life needs."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""


def learn(component: Component, learner: Learner) -> None:
    """Run a learner from its checkpoint, if there is one, until it is stopped; then drain its rollouts."""
    vault = Vault(component, learner.state, learner.replay, lambda: learner.settled)
    if (state := vault.restore()) is not None:
        learner.restore(state)
    component.ready()
    learner.publish()
    while component.running:
        learner.wait()
        learner.take_weights()
        learner.take_rollouts()
        if learner.may_update:
            with learner.cadence.updating(), learner.work.update():
                learner.update()
        learner.publish_if_due()
        vault.serve()
    for rollout in learner.intake.drain():
        learner.store(rollout)
