"""What a learner learns from: when it takes rollouts and weights, when it trains, and when it publishes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.shared_model import Statistics
from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.component import Component, Weights
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.publication import Outlet
from spreeze_zmq.plan.roles import ACTOR_LEARNER, SAMPLER
from spreeze_zmq.replay import ObservationReplay, Replay, RoundStore
from spreeze_zmq.wire import MAX_COUNT, Message


@dataclass
class Counts:
    """What a learner counts over all its lives; each checkpoint holds it.

    Attributes:
        version: of the weights published last, as of the checkpoint.
        env_steps: transitions that the run has sampled, as far as this learner knows.
        trained: transitions that updates have trained on.
        sampled: transitions that the replay ratio counts: received beyond ``learning_starts`` until the
            samplers are stopped; on-policy, those of rounds that began.
        trained_version: on-policy, the newest policy version among the rollouts of rounds that began.
    """

    version: int = 0
    env_steps: int = 0
    trained: int = 0
    sampled: int = 0
    trained_version: int = 0

    def state(self) -> dict[str, int]:
        return asdict(self)

    def restore(self, saved: Mapping[str, int]) -> None:
        """Continue from :meth:`state`, or from what a learner saved when each kept counters of its own: a
        policy's version had another name.
        """
        version = saved.get("policy_version", saved.get("version", 0))
        for name in vars(self):
            setattr(self, name, saved.get(name, 0))
        self.version = version


class Experience(ABC):
    """The rollouts of one learner: transitions in a replay with its gate, or rounds.

    Args:
        component: the learner.
        half: the half of the algorithm that is trained.
        outlet: publishes that half's weights.
        others: the other half's weights; None for a lone learner.
        counts: counted here, kept by the learner.

    Attributes:
        begun: in order, the env steps before its rounds began to count: those of a run that it does not go on
            from exactly.
        intake: the rollouts that arrive.
        replay: the rollouts that are kept.
        lag: transitions by the lag of their policy on receipt, or on-policy when their round began.
    """

    replay: Replay | ObservationReplay | RoundStore

    def __init__(
        self,
        component: Component,
        half: AutogradHalf,
        outlet: Outlet,
        others: Weights | None,
        counts: Counts,
    ) -> None:
        self.component, self.half, self.outlet, self.others = component, half, outlet, others
        self.counts, self.cadence, self.limits = counts, outlet.cadence, outlet.limits
        self.options, self.balance = half.algorithm.options, component.plan.balance
        self.in_order = self.balance.in_order
        self.begun = 0
        self._limit = component.plan.run.stop.env_steps or math.inf
        memory_size = type(half.algorithm).memory_size(self.options)
        self.intake = Intake(component, self.options.frame_stack, self.too_stale, self.unfit, memory_size)
        self.lag = LagHistogram()
        self._hears_run = not self.in_order
        component.on("status", self.hear_run)

    # --- what it waits for

    @property
    @abstractmethod
    def wants(self) -> bool:
        """Whether another rollout may be added now."""

    @property
    def enough(self) -> float:
        """Env steps at which the run ends; in order at the end of a round, so that all samplers are equally
        far.
        """
        if not self.in_order or self._limit == math.inf:
            return self._limit
        num_samplers = self.component.plan.components[SAMPLER].count.initial
        a_round = max(1, num_samplers * self.balance.rollout_transitions)
        return self.begun + a_round * math.ceil((self._limit - self.begun) / a_round)

    def rest_at(self, env_steps: int | None) -> bool:
        """In order: be done where all is done that this many transitions of the run allow, at the end of a
        round; None for all of the run. False, and nothing changes, if more has been done by now; who has no
        other half to meet there rests at the next round then.
        """
        limit, before = self.component.plan.run.stop.env_steps or math.inf, self._limit
        if env_steps is not None and self.others is None:
            env_steps = max(env_steps, self.counts.env_steps)
        self._limit = limit if env_steps is None else min(env_steps, limit)
        if env_steps is not None and self._is_beyond():
            self._limit = before
            return False
        return True

    def _is_beyond(self) -> bool:
        """In order: whether more samples have been taken than :attr:`enough`."""
        return self.counts.env_steps > self.enough

    @property
    def ready(self) -> bool:
        """Whether another update may begin now."""
        if self.stopping or self.outlet.owed:
            return False
        return self._has_batch() and not self._lacks_weights()

    @property
    def pooled(self) -> Sequence[Statistics]:
        """The statistics that all groups of a run have in common."""
        return ()

    @property
    def may_change(self) -> bool:
        """Whether the networks may be replaced now by those of all groups."""
        return True

    @property
    def wants_weights(self) -> bool:
        """Whether the other half's next weights may be loaded now: always, except in order: then when an
        update lacks them.
        """
        return not self.in_order or self._lacks_weights()

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether all updates are made that the samples of this run allow, and in order all weights of the
        other half have come.
        """

    @property
    @abstractmethod
    def owed(self) -> str:
        """What it waits for when it is not ready, in words."""

    @property
    def stopping(self) -> bool:
        """Whether the samplers have been stopped: the remaining rollouts are kept, nothing is trained."""
        return SAMPLER in self.component.stopping_roles

    @abstractmethod
    def _has_batch(self) -> bool:
        """Whether there are samples for another update."""

    @abstractmethod
    def _lacks_weights(self) -> bool:
        """Whether the next update has to wait for weights of the other half."""

    @property
    def _num_weights(self) -> float:
        """Versions of the other half's weights that have been loaded; infinite for a lone learner."""
        return math.inf if self.others is None else self.others.num_taken

    # --- what comes in

    def begin(self) -> None:  # noqa: B027
        """Called once before anything is received, when kept rollouts are back."""

    def too_stale(self, rollout: Rollout) -> str:
        """Why a rollout is older than ``max_policy_lag`` allows; empty if it is not."""
        return ""

    def unfit(self, rollout: Rollout) -> str:
        """Why a rollout that fits the environment cannot be kept; empty if it can."""
        return ""

    @abstractmethod
    def add(self, rollout: Rollout) -> None:
        """Keep one rollout to train on."""

    @abstractmethod
    def meet(self, message: Message) -> None:
        """Note what came with the other half's weights, which have been loaded."""

    def hear_run(self, status: Mapping[str, Any]) -> None:
        """Catch up with what a critic-learner had reported to the broker, which knows it though both learners
        were started again. An actor-learner hears it once: later, what is on its way to it is in that count.
        """
        received = status.get("env_steps")
        if self._hears_run and type(received) is int:
            self._hears_run = self.component.role != ACTOR_LEARNER
            self.catch_up(received)

    def catch_up(self, received: int) -> None:
        """Count what the run has received and this learner, which went back to a checkpoint, has not."""
        if received > self.counts.env_steps:
            self.count(received - self.counts.env_steps)

    def count(self, transitions: int) -> None:
        """Add to ``env_steps``. The last sample of the run is reported at once, so that the broker ends the
        run before samplers collect more.
        """
        before = self.counts.env_steps
        self.counts.env_steps = min(before + transitions, MAX_COUNT - 1)  # what a message can say
        if before < self.enough <= self.counts.env_steps:
            self.component.send_report()

    def set(self, option: str, value: Any) -> None:  # noqa: B027
        """Follow a change of an option, which the half has followed if it is the algorithm's."""

    # --- an update

    @abstractmethod
    def next(self) -> tuple[Any, bool] | None:
        """The next update's batch, and whether that computes the expensive metrics; None without a batch."""

    @abstractmethod
    def trained(self, batch: Any) -> int:
        """Note an update on ``batch``; returns its transitions."""

    # --- what goes out

    @abstractmethod
    def due(self) -> bool:
        """Whether new weights are to be published; True once per publication."""

    @abstractmethod
    def limits_due(self) -> bool:
        """Whether samplers may wait for another limit of collection."""

    @abstractmethod
    def news(self) -> dict[str, Any] | None:
        """The arguments of :meth:`Outlet.publish`; None if the publication has to wait."""

    @abstractmethod
    def recorded(self) -> dict[str, int]:
        """The counts of a line of the record."""

    @abstractmethod
    def gauges(self) -> dict[str, float]:
        """Momentary figures of every report."""

    def policy_lag(self) -> dict[str, float]:
        """For reports, of one learner: quantiles of the lag in versions, and the dropped transitions."""
        return {**self.lag.summary(), "stale": self.intake.stale_transitions}

    # --- what is kept

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a restart needs besides the rollouts and the counts."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`, after the half and the counts."""

    @property
    def keeps_order(self) -> bool:
        """Whether a run can go on exactly from where this one has done all that its samples allow."""
        return self.in_order

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What such a run needs besides :meth:`state`, once all is done."""

    @abstractmethod
    def go_on(self, order: Mapping[str, Any]) -> int:
        """Continue from :meth:`order`, after :meth:`restore`; returns each sampler's transitions so far."""

    def join(self, env_steps: int) -> None:  # noqa: B027
        """Go on with networks that a run of so many transitions has trained, of which few may be here."""

    def act_on(self) -> None:
        """Have samplers act by the present networks of a replay, though no update has made them."""
        self.outlet.updates = -1

    def go_back(self) -> None:  # noqa: B027
        """Forget what follows from weights that have been replaced by earlier ones."""
