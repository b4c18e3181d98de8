"""What all learners own and do alike."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.component import Component
from spreeze_zmq.device import Work
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.publication import Outbox, Record
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, prepare_device
from spreeze_zmq.plan.roles import PART_OF, SAMPLER
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message


class BaseLearner(ABC):
    """One half of an algorithm, with its rollouts in and its weights out.

    Attributes:
        options: the algorithm's.
        half: the half of the algorithm that this learner trains.
        intake: the rollouts that it receives.
        cadence: when it publishes.
        work: its updates on the device.
        record: of its counted publications.
        enough: transitions at which the run ends; infinite without such a limit.
        env_steps: transitions that the run has sampled, as far as this learner knows.
        metrics: of the last update, 0-d float32 on the device.
    """

    intake: Intake

    def __init__(self, component: Component) -> None:
        self.component, self.plan = component, component.plan
        self.device = prepare_device(component)
        algorithm, self.options = algorithm_of(self.plan)
        part, seed = PART_OF[component.role], self.plan.run.seed
        self.half: Any = algorithms.make(
            part, algorithm, self.options, component.environment, self.device, seed
        )
        self.cadence = cadence_of(component)
        self.work = Work(self.device)
        self.record = Record(component.folder.learning / f"{component.role}.jsonl", self.cadence)
        self.enough: float = self.plan.run.stop.env_steps or math.inf
        self.env_steps = 0
        self.metrics: Mapping[str, Any] = {}
        component.figures.update(counters=self.counters, gauges=self.gauges, device=self.work.figures)
        component.figures["publication"] = self.cadence.figures

    @property
    @abstractmethod
    def may_update(self) -> bool:
        """Whether another update may begin now."""

    @property
    @abstractmethod
    def may_pull(self) -> bool:
        """Whether another rollout may be stored now."""

    @property
    def stopping(self) -> bool:
        """Whether the samplers have been stopped: what they have sent is taken in, and nothing is trained."""
        return SAMPLER in self.component.stopping_roles

    @property
    def has_work(self) -> bool:
        """Whether an update or the next rollout needs no wait."""
        return self.may_update or (self.may_pull and self.intake.ready)

    def poll(self, sources: Sequence[Any], owed: str) -> None:
        """Serve the sockets; wait on ``sources`` for up to a second, for what is ``owed``, without work."""
        if self.has_work:
            self.component.poll(sources)
        else:
            self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)

    def take_rollouts(self) -> None:
        """Store the rollouts that wait, as far as ``may_pull`` allows."""
        while self.may_pull and (rollout := self.intake.take()) is not None:
            self.store(rollout)

    @abstractmethod
    def store(self, rollout: Rollout) -> None:
        """Keep one rollout to train on."""

    def count_env_steps(self, transitions: int) -> None:
        """Add to ``env_steps``. With the last sample of the run it reports at once, so that the broker ends
        the run before samplers collect more.
        """
        before, self.env_steps = self.env_steps, self.env_steps + transitions
        if before < self.enough <= self.env_steps:
            self.component.send_report()

    def publish_critics(self, outbox: Outbox, version: int, *, wait: bool, **fields: Any) -> None:
        """Send the critics to the actor-learner, with further ``fields`` of the message."""
        counts = {"critic_updates": self.half.num_updates, "env_steps": self.env_steps}
        fields = {"version": version, **counts, **fields}
        outbox.put(
            self.half.weights, lambda weights: Message("critic", fields, {"parameters": weights}), wait=wait
        )

    def losses(self) -> dict[str, float]:
        """The metrics of the last update, for reports; waits for the device."""
        return {name: float(value) for name, value in self.metrics.items()}

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""

    @abstractmethod
    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""
