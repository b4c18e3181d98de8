"""A learner: what all learners own and do alike, and their loop."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq import algorithms, kept_memory
from spreeze_zmq.component import Component
from spreeze_zmq.device import Work
from spreeze_zmq.errors import CheckpointError, Diverged
from spreeze_zmq.learner.arithmetic import arithmetic_of
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.memory import check_memory
from spreeze_zmq.learner.publication import Outbox, Record
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, prepare_device
from spreeze_zmq.learner.vault import SavedReplay, Vault
from spreeze_zmq.plan.roles import PART_OF, SAMPLER
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: Between updates that are shorter than this the sockets are served once in this time, s.
POLL_INTERVAL_S = 0.005
#: Of so many updates one gives the metrics that take time: three means are a tenth of a short update.
MEASURED_EVERY = 8


class Learner(ABC):
    """One half of an algorithm, with its rollouts in and its weights out.

    Attributes:
        options: the algorithm's.
        half: the half of the algorithm that this learner trains.
        arithmetic: of an update, and the device's.
        intake: the rollouts that it receives.
        replay: what it keeps of them.
        cadence: when it publishes.
        work: its updates on the device.
        record: of its counted publications.
        enough: transitions at which the run ends; infinite without such a limit.
        env_steps: transitions that the run has sampled, as far as this learner knows.
        metrics: of the newest updates, 0-d float32 on the device.
    """

    intake: Intake
    replay: SavedReplay

    def __init__(self, component: Component) -> None:
        self.component, self.plan = component, component.plan
        if (memory := kept_memory.inherited()) is not None and kept_memory.is_new(memory):
            check_memory(self.plan)  # not again after a crash: by then the other learners' replays have grown
        self.device = prepare_device(component)
        algorithm, self.options = algorithm_of(self.plan)
        part, seed = PART_OF[component.role], self.plan.run.seed
        self.half: Any = algorithms.make(
            part, algorithm, self.options, component.environment, self.device, seed
        )
        self.arithmetic = arithmetic_of(
            self.half, part, algorithm, self.options, component.environment, self.device
        )
        self.cadence = cadence_of(component)
        self.work = Work(self.device)
        self.record = Record(component.folder.learning / f"{component.role}.jsonl", self.cadence)
        self.enough: float = self.plan.run.stop.env_steps or math.inf
        self.env_steps = 0
        self.metrics: Mapping[str, Any] = {}
        self._poll_s = 0.0
        component.figures.update(counters=self.counters, gauges=self.gauges, device=self.device_figures)
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
    @abstractmethod
    def settled(self) -> bool:
        """Whether it has done all that the samples of this run allow."""

    @property
    def stopping(self) -> bool:
        """Whether the samplers have been stopped: what they have sent is taken in, and nothing is trained."""
        return SAMPLER in self.component.stopping_roles

    @property
    def has_work(self) -> bool:
        """Whether an update or the next rollout needs no wait."""
        return self.may_update or (self.may_pull and self.intake.ready)

    def poll(self, sources: Sequence[Any], owed: str) -> None:
        """Serve the sockets, between short updates not each time; wait on ``sources`` for up to a second, for
        what is ``owed``, without work.
        """
        if not self.has_work:
            self.component.poll(sources, timeout_s=1.0, charge="starved", waiting_for=owed)
        elif time.monotonic() >= self._poll_s:
            self.component.poll(sources)
        else:
            return
        self._poll_s = time.monotonic() + POLL_INTERVAL_S

    @abstractmethod
    def wait(self) -> None:
        """Wait on the sockets for what an update lacks; not at all where it lacks nothing."""

    @abstractmethod
    def take_weights(self) -> None:
        """Load what the other half has published."""

    def take_rollouts(self) -> None:
        """Store the rollouts that wait, as far as ``may_pull`` allows."""
        while self.may_pull and (rollout := self.intake.take()) is not None:
            self.store(rollout)

    @abstractmethod
    def store(self, rollout: Rollout) -> None:
        """Keep one rollout to train on."""

    @abstractmethod
    def update(self) -> None:
        """Train on one batch."""

    def train_on(self, batch: Any) -> None:
        """One gradient step; in lock-step with every metric, else now and then with those that take time."""
        measured = bool(self.cadence.every) or self.half.num_updates % MEASURED_EVERY == 0
        self.metrics = {**self.metrics, **self.half.update(batch, measured)}

    @abstractmethod
    def publish(self) -> None:
        """Send the weights."""

    @abstractmethod
    def publish_if_due(self) -> None:
        """Send the weights when the clock or the count says so, or when samplers wait for a new limit."""

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
        """The metrics of the newest updates, for reports; waits for the device."""
        return {name: float(value) for name, value in self.metrics.items()}

    def device_figures(self) -> dict[str, float]:
        """For reports: what the device could multiply, and a GPU's load."""
        return {**self.work.figures(), "limit_flops_per_s": self.arithmetic.limit_flops_per_s}

    def flops(self, transitions: float) -> dict[str, float]:
        """For reports: the arithmetic of all ``transitions`` that were trained on."""
        role = self.component.role.removesuffix("_learner")
        return {f"{role}_flops": transitions * self.arithmetic.flops_per_transition}

    @abstractmethod
    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report."""

    @abstractmethod
    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything that a restart needs besides the replay, which is saved only with ``save_replay``."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""

    def go_back(self, state: Mapping[str, Any]) -> None:
        """Take the networks and optimiser of an earlier :meth:`state`; samples and counts go on."""
        num_updates = self.half.num_updates
        self.half.load_state_dict(state["half"])
        self.half.num_updates, self.half.env_steps = num_updates, self.env_steps


def learn(component: Component, learner: Learner) -> None:
    """Run a learner from its checkpoint, if there is one, until it is stopped; then drain its rollouts."""
    vault = Vault(component, learner.state, learner.replay, lambda: learner.settled)
    if (state := vault.restore()) is not None:
        try:
            learner.restore(state)
        except (KeyError, RuntimeError) as error:
            said = str(error).strip().splitlines()[0]
            raise CheckpointError(f"the checkpoint holds other networks than this run's: {said}") from error
    component.ready()
    learner.publish()
    while component.running:
        learner.wait()
        learner.take_weights()
        learner.take_rollouts()
        try:
            if learner.may_update:
                with learner.cadence.updating(), learner.work.update():
                    learner.update()
            learner.publish_if_due()
            vault.serve()
        except Diverged as error:
            learner.go_back(vault.last_good(error, learner.half.num_updates))
    for rollout in learner.intake.drain():
        learner.store(rollout)
