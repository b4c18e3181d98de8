"""The base of all learners: what they own and do alike, and their loop."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from spreeze_zmq import algorithms, kept_memory
from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.device import Work
from spreeze_zmq.errors import CheckpointError, Diverged, WireError
from spreeze_zmq.learner.arithmetic import arithmetic_of
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.publication import Outbox, PolicyOutlet, Record
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, check_memory, prepare_device
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC, PART_OF, POLICY, SAMPLER, publisher_of_policy
from spreeze_zmq.replay import ObservationReplay, Replay, RoundStore
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: Between updates that are shorter than this the sockets are served once in this time, s.
POLL_INTERVAL_S = 0.005
#: One update in this many computes the expensive metrics: three means take a tenth of a short update.
MEASURED_EVERY = 8


class Learner(ABC):
    """One half of an algorithm: receives rollouts and the other half's weights, trains, publishes its own.

    Attributes:
        options: the algorithm's options.
        half: the half of the algorithm that this learner trains.
        arithmetic: the arithmetic of an update, and the device's limit.
        cadence: when it publishes.
        work: runs and times updates on the device.
        record: the record of publications by count.
        policy: publishes the policy; None where the other learner does.
        outbox: publishes this half's weights: the policy or the critics.
        others: the other half's weights; None for a lone learner.
        intake: the rollouts that arrive.
        replay: the rollouts that it keeps.
        enough: transitions at which the run ends; infinite without such a limit.
        env_steps: transitions that the run has sampled, as far as this learner knows.
        sampled: transitions received until the samplers are stopped; on-policy, those of rounds that began.
        trained: transitions that updates have trained on.
        lag: transitions by the lag of their policy on receipt, or on-policy when their round began.
        metrics: metrics of the newest updates, 0-d float32 on the device.
    """

    #: Version of the run's first policy; 0 stands for uniformly random actions.
    first_version = 0

    intake: Intake
    replay: Replay | ObservationReplay | RoundStore

    def __init__(self, component: Component) -> None:
        self.component, self.plan = component, component.plan
        self.balance = component.plan.balance
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
        learners = self.plan.learning.learners
        self.policy: PolicyOutlet | None = None
        if publisher_of_policy(learners) == component.role:
            self.policy = PolicyOutlet(component, self.half, self.cadence, self.device, self.first_version)
            self.outbox = self.policy.outbox
        else:
            self.outbox = Outbox(component.open(CRITIC), self.cadence, self.device)
        self.others: Weights | None = None
        if len(learners) > 1:
            channel = POLICY if self.policy is None else CRITIC
            self.others = Weights(component.open(channel), in_turn=self.balance.in_order)
        self.enough: float = self.plan.run.stop.env_steps or math.inf
        self.env_steps = self.sampled = self.trained = 0
        self.metrics: Mapping[str, Any] = {}
        self.lag = LagHistogram()
        self._poll_s = 0.0
        component.figures.update(counters=self.counters, gauges=self.gauges, device=self.device_figures)
        component.figures["publication"] = self.cadence.figures

    # --- what it may do

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
    def may_load(self) -> bool:
        """Whether the other half's next weights may be loaded now."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether it has done all updates that the samples of this run allow."""

    @property
    @abstractmethod
    def owed(self) -> str:
        """What it waits for when it cannot update, in words."""

    @property
    def stopping(self) -> bool:
        """Whether the samplers have been stopped: the remaining rollouts are stored, nothing is trained."""
        return SAMPLER in self.component.stopping_roles

    # --- what it does

    def wait(self) -> None:
        """Serve the sockets; if there is nothing to do, wait up to a second for rollouts and weights."""
        if self.may_update or (self.may_pull and self.intake.ready):
            if time.monotonic() < self._poll_s:
                return
            self.component.poll()
        else:
            self.component.poll(self.sources(), timeout_s=1.0, charge="starved", waiting_for=self.owed)
        self._poll_s = time.monotonic() + POLL_INTERVAL_S

    def sources(self) -> list[Any]:
        """The channels whose next message it can use now."""
        channels: list[Any] = [self.intake.puller] if self.may_pull else []
        if self.others is not None and self.may_load:
            channels.append(self.others.subscriber)
        return channels

    def take_weights(self) -> None:
        """Load the other half's newest weights, or in order the next version of them."""
        if self.others is None or not self.may_load or (message := self.others.take()) is None:
            return
        try:
            self.load(message)
        except WireError as error:
            self.others.refuse(message, error)

    @abstractmethod
    def load(self, message: Message) -> None:
        """Load the other half's weights.

        Raises:
            WireError: they do not fit this half.
        """

    def take_rollouts(self) -> None:
        """Store the rollouts that have arrived, as far as ``may_pull`` allows."""
        while self.may_pull and (rollout := self.intake.take()) is not None:
            self.store(rollout)

    @abstractmethod
    def store(self, rollout: Rollout) -> None:
        """Keep one rollout to train on."""

    @abstractmethod
    def update(self) -> None:
        """Train on one batch."""

    def train_on(self, batch: Any) -> None:
        """One gradient step; the expensive metrics are measured always in lock-step, else now and then."""
        measured = bool(self.cadence.every) or self.half.num_updates % MEASURED_EVERY == 0
        self.metrics = {**self.metrics, **self.half.update(batch, measured)}

    @abstractmethod
    def publish(self) -> None:
        """Publish the weights."""

    @abstractmethod
    def publish_if_due(self) -> None:
        """Publish the weights when the clock or the count says so, or when samplers wait for a new limit."""

    def publish_critics(self, version: int, *, wait: bool, **fields: Any) -> None:
        """Publish the critics to the actor-learner, with further ``fields`` of the message."""
        counts = {"critic_updates": self.half.num_updates, "env_steps": self.env_steps}
        fields = {"version": version, **counts, **fields}
        self.outbox.put(
            self.half.weights, lambda weights: Message("critic", fields, {"parameters": weights}), wait=wait
        )

    def count_env_steps(self, transitions: int) -> None:
        """Add to ``env_steps``. The last sample of the run is reported at once, so that the broker ends the
        run before samplers collect more.
        """
        before, self.env_steps = self.env_steps, self.env_steps + transitions
        if before < self.enough <= self.env_steps:
            self.component.send_report()

    # --- what it reports and keeps

    def losses(self) -> dict[str, float]:
        """The metrics of the newest updates, for reports; waits for the device."""
        return {name: float(value) for name, value in self.metrics.items()}

    def device_figures(self) -> dict[str, float]:
        """For reports: the device's largest arithmetic rate, and a GPU's load."""
        return {**self.work.figures(), "limit_flops_per_s": self.arithmetic.limit_flops_per_s}

    def flops(self) -> dict[str, float]:
        """For reports: floating point operations of all updates so far."""
        role = self.component.role.removesuffix("_learner")
        return {f"{role}_flops": self.trained * self.arithmetic.flops_per_transition}

    def policy_lag(self) -> dict[str, float]:
        """For reports, of one learner: quantiles of the lag in versions, and the dropped transitions."""
        return {**self.lag.summary(), "stale": self.intake.stale_transitions}

    def counters(self) -> dict[str, float]:
        """Cumulative figures of every report; the critic-learner, even alone, counts the experience."""
        counted = self.flops()
        if self.policy is not None:
            counted["policy_version"] = self.policy.versions.newest
        if self.component.role == ACTOR_LEARNER:
            return {**counted, "actor_updates": self.half.num_updates}
        experience = {"env_steps": self.env_steps, "sampled_transitions": self.sampled}
        experience |= {"trained_transitions": self.trained, "critic_updates": self.half.num_updates}
        return {**counted, **experience}

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
        """Load the networks and optimiser of an earlier :meth:`state`; samples and counts go on."""
        num_updates = self.half.num_updates
        self.half.load_state_dict(state["half"])
        self.half.num_updates, self.half.env_steps = num_updates, self.env_steps


def learn(component: Component, learner: Learner) -> None:
    """Run a learner, from its checkpoint if there is one, until it is stopped; then drain its rollouts."""
    vault = Vault(component, learner.state, learner.replay, lambda: learner.settled)
    if (state := vault.restore()) is not None:
        try:
            learner.restore(state)
        except (KeyError, RuntimeError) as error:
            problem = str(error).strip().splitlines()[0]
            raise CheckpointError(f"the checkpoint's networks differ from this run's: {problem}") from error
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
