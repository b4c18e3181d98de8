"""The experience of an off-policy critic-learner: a replay, trained on at the run's replay ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import RatioGate
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.learner.replayed import ReplayExperience
from spreeze_zmq.plan.moves import REPLAY_RATIO
from spreeze_zmq.plan.roles import ACTOR_LEARNER, SAMPLER
from spreeze_zmq.replay import Replay
from spreeze_zmq.wire import Message


class RatioExperience(ReplayExperience):
    """Trains the critics at the replay ratio of the run.

    Only their learner counts the experience of the run: its env steps, its replay ratio and its policy lag.
    """

    replay: Replay

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        starts: int = self.options.learning_starts
        if self.in_order and self.limits.schedule is not None:
            starts = self.limits.schedule.counted_from
        self.gate = RatioGate(self.balance.replay_ratio, self.batch_size, starts, slack=0)
        self._count_replay_as_trained()
        self._first_policy = 0
        self._updates_before = self.half.num_updates
        self.component.figures["policy_lag"] = self.policy_lag

    # --- what it waits for

    def _has_batch(self) -> bool:
        return self.gate.may_update

    def _lacks_weights(self) -> bool:
        """Whether an update waits for a policy of the actor-learner: for the first one or, in order, for all
        but the one that is trained at the same time.
        """
        return self._num_weights < (max(1, self.cadence.published) if self.in_order else 1)

    def _newest_policy(self) -> int | None:
        """The version of the newest policy; None before the first. In order this is the one that the
        actor-learner trains on the critics published last, even before it has been received.
        """
        if self.others is None:
            return self.outlet.versions.newest
        if self.others.num_taken == 0:
            return None
        return self._first_policy + self.cadence.published if self.in_order else self.others.version

    @property
    def wants(self) -> bool:
        """Whether the ratio and the run allow more samples and a policy has come to measure their lag by, or
        the samplers have been stopped.
        """
        wanted = self.gate.may_pull and self.counts.env_steps < self.enough
        return (wanted and self._newest_policy() is not None) or self.stopping

    @property
    def done(self) -> bool:
        """Whether all samples are trained on and the policies have come that another update would need."""
        return self._trained_out() and not self._lacks_weights()

    def _trained_out(self) -> bool:
        """Whether all samples of the run have come and been trained on as often as the ratio allows."""
        return self.counts.env_steps >= self.enough and not self.gate.may_update

    @property
    def owed(self) -> str:
        """A policy or rollouts."""
        return f"a policy from {ACTOR_LEARNER}" if self._lacks_weights() else f"rollouts from {SAMPLER}"

    # --- what comes in

    def too_stale(self, rollout: Rollout) -> str:
        """Why a rollout is older than ``max_policy_lag`` allows; empty if it is not."""
        if (bound := self.balance.max_policy_lag) is None:
            return ""
        if (newest := self._newest_policy()) is None:
            return "the newest policy is not known yet"
        lag = newest - rollout.policy_version
        return f"{lag} versions behind, max_policy_lag is {bound}" if lag > bound else ""

    def add(self, rollout: Rollout) -> None:
        """Add one rollout to the replay and count it for the ratio, the run and the lag."""
        self.replay.add(rollout)
        self.outlet.observe(rollout)
        self.gate.slack = self.balance.slack_rollouts * rollout.num_transitions
        usable = 0 if self.stopping else rollout.num_transitions
        before = self.gate.counted
        self.gate.received += usable
        self.counts.sampled += self.gate.counted - before
        self.count(rollout.num_transitions)
        self.lag.add((self._newest_policy() or 0) - rollout.policy_version, rollout.num_transitions)

    def count(self, transitions: int) -> None:
        """Count transitions for the half too."""
        super().count(transitions)
        self.half.env_steps = self.counts.env_steps

    def meet(self, message: Message) -> None:
        """Note the first policy. After a restart from an older checkpoint the actor-learner knows better how
        many transitions were received.
        """
        assert self.others is not None
        if self.others.num_taken == 1:
            self._first_policy = self.others.version
            self.catch_up(int(message.fields["extras"].get("env_steps", 0)))

    # --- an update

    def set(self, option: str, value: Any) -> None:
        """Follow a change of the ratio, and of what the gate and the replay read, too."""
        super().set(option, value)
        self.gate.batch_size = self.batch_size
        self.replay.restate(self.half.algorithm.options)
        if option == REPLAY_RATIO:
            self.gate.retarget(value)

    def trained(self, batch: Any) -> int:
        """Note an update for the ratio and the priorities."""
        if self.replay.prioritized:
            self.replay.prioritize(self.half.priorities())
        self.gate.trained += self.batch_size
        return self.batch_size

    # --- what goes out

    def due(self) -> bool:
        """By the clock, and at the end of the run; or by the count alone."""
        if self.half.num_updates == self.outlet.updates:
            return False
        due = self.cadence.due(self.half.num_updates - self._updates_before)
        return due or (self._trained_out() and not self.in_order)

    def limits_due(self) -> bool:
        """When samplers may have used up their share."""
        return self.limits.used_up(self.intake.taken())

    def news(self) -> dict[str, Any]:
        """Its updates, and the positions that it has taken."""
        return {"critic_updates": self.half.num_updates, "positions": self.intake.taken()}

    def recorded(self) -> dict[str, int]:
        """Updates and samples."""
        return {"critic_updates": self.half.num_updates, "env_steps": self.counts.env_steps}

    def gauges(self) -> dict[str, float]:
        """The ratio once there is one, the replay, the batch and what rewards are divided by."""
        measured = self.gate.measured
        return {
            **({} if measured is None else {"replay_ratio": measured}),
            "replay_size": len(self.replay),
            "learning_rate": self.half.learning_rate,
            "batch_size": self.batch_size,
            **self._scale_gauges(),
        }

    def _scale_gauges(self) -> dict[str, float]:
        """What rewards are divided by, and for how few returns; nothing where they are not divided."""
        if (scale := self.replay.scale) is None:
            return {}
        return {"reward_divisor": scale.divisor, "return_spread": scale.spread}

    # --- what is kept

    def go_back(self) -> None:
        """Forget the errors of weights that are gone, which may not even be finite."""
        self.replay.forget_errors()

    def _count_replay_as_trained(self) -> None:
        """Count what the replay has been given of samplers as received and, beyond ``learning_starts``, as
        trained on; a run in order counts from 0, as its samplers do.
        """
        if not self.in_order:
            self.gate.received = self.replay.num_sampled
            self.gate.count_as_trained(int(self.gate.replay_ratio * self.gate.counted))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`."""
        super().restore(state)
        self.begun = self.counts.env_steps
        self._begin_after_refill()
        self._updates_before = self.half.num_updates

    def join(self, env_steps: int) -> None:
        """As a learner that has lost its replay."""
        super().join(env_steps)
        if self.refill > self.gate.learning_starts:
            self._begin_after_refill()

    def _begin_after_refill(self) -> None:
        self.gate.learning_starts = max(self.gate.learning_starts, self.refill)
        self._count_replay_as_trained()

    def order(self) -> dict[str, Any]:
        """Also its gate, and where it counts from."""
        gate = {"received": self.gate.received, "trained": self.gate.trained}
        own = {"begun": self.begun, "updates_before": self._updates_before}
        return {**super().order(), **gate, **own, "first_policy": self._first_policy}

    def go_on(self, order: Mapping[str, Any]) -> int:
        """Also with the counts of the run before."""
        super().go_on(order)
        self.gate.received, self.gate.trained = order["received"], order["trained"]
        self.begun, self._updates_before = order["begun"], order["updates_before"]
        self._first_policy = order["first_policy"]
        return self.gate.received // self.component.plan.components[SAMPLER].count.initial
