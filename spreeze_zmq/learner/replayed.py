"""The experience of an off-policy learner: a replay, trained on at a ratio or as often as the critics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spreeze_zmq import kept_memory
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.balance import DelayGate, RatioGate
from spreeze_zmq.learner.experience import Experience
from spreeze_zmq.plan.roles import ACTOR_LEARNER, CRITIC_LEARNER, SAMPLER
from spreeze_zmq.replay import ObservationReplay, Replay, replay_of
from spreeze_zmq.rollout import Rollout
from spreeze_zmq.wire import Message

#: After a restart without the replay: share of the lost transitions that must come before the next update.
REFILL_SHARE = 0.1
#: One update in this many computes the expensive metrics: three means take a tenth of a short update.
MEASURED_EVERY = 8

log = logging.getLogger("spreeze")


class ReplayExperience(Experience):
    """A replay whose batches the broker may resize where the topology says ``batch_size = "auto"``.

    Attributes:
        batch_size: transitions of an update.
        learning_rate: at that size.
    """

    replay: Replay | ObservationReplay

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        component, plan = self.component, self.component.plan
        device, seed = component.options["device"], plan.run.seed
        self.replay = replay_of(self.intake.fields, component.environment, self.options, device, seed)
        if (descriptor := kept_memory.inherited()) is not None:
            self.replay.keep_in(descriptor)  # so that it survives a crash of the learner
        if count := len(self.replay):
            log.info("the replay is back: %s transitions outlived the process before this one", f"{count:,}")
        self.learning_rate = float(plan.algorithm["learning_rate"])
        self.batch_size = self._largest_batch = plan.learning.batch_size
        if "batch_size" in plan.measured:
            component.on("set", self._on_set)

    def _on_set(self, fields: Mapping[str, Any]) -> None:
        """Use another batch size and scale the rates to it. Messages are handled between two updates."""
        size = fields["value"]
        if (fields["role"], fields["option"]) != (self.component.role, "batch_size") or type(size) is not int:
            return
        if 0 < size <= self._largest_batch and size != self.batch_size:
            scaling = sizing.scaling_of(self.component.plan, size)
            rates = {name: option["scaled"] for name, option in scaling["options"].items()}
            self.half.set_rates(rates)
            log.info("batch size %d -> %d; %s", self.batch_size, size, sizing.scaling_line(scaling))
            self.batch_size, self.learning_rate = size, rates["learning_rate"]

    def next(self) -> tuple[Any, bool]:
        """A batch drawn from the replay; where publications are counted, and recorded, each is measured."""
        measured = bool(self.cadence.every) or self.half.num_updates % MEASURED_EVERY == 0
        return self.replay.sample(self.batch_size), measured

    def state(self) -> dict[str, Any]:
        """The state of the drawing; the replay is saved only with ``save_replay``."""
        return {"replay": self.replay.random_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.replay.set_random_state(state["replay"])


class RatioExperience(ReplayExperience):
    """Trains the critics at the replay ratio of the run.

    Only their learner counts the experience of the run: its env steps, its replay ratio and its policy lag.
    """

    replay: Replay

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        starts: int = self.options.learning_starts
        if self.in_order and self.limits.schedule is not None:
            starts = self.limits.schedule.first_update_at
        self.gate = RatioGate(self.balance.replay_ratio, self.batch_size, starts, slack=0)
        self._count_replay_as_trained()
        self._first_policy = 0
        self._updates_before = self.half.num_updates
        self.refills = False
        self.component.lacks = self.lacks
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

    def lacks(self) -> str:
        """What it waits for although samples come: those that replace a replay that was not saved."""
        missing = self.gate.learning_starts - self.gate.received if self.refills else 0
        return f"{missing:,} more transitions, as its replay was not saved" if missing > 0 else ""

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
        self.gate.received += usable
        self.counts.sampled += usable
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
            self.count(max(0, int(message.fields["extras"].get("env_steps", 0)) - self.counts.env_steps))

    # --- an update

    def _on_set(self, fields: Mapping[str, Any]) -> None:
        super()._on_set(fields)
        self.gate.batch_size = self.batch_size

    def trained(self, batch: Any) -> int:
        """Note an update for the ratio and the priorities."""
        if self.replay.prioritized:
            self.replay.prioritize(self.half.priorities())
        self.gate.trained += self.batch_size
        return self.batch_size

    # --- what goes out

    def due(self) -> bool:
        """By the clock or the count, and at the end of the run."""
        if self.half.num_updates == self.outlet.updates:
            return False
        return self.cadence.due(self.half.num_updates - self._updates_before) or self._trained_out()

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
        """The ratio, the replay and the batch."""
        return {
            "replay_ratio": self.gate.measured,
            "replay_size": len(self.replay),
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
        }

    # --- what is kept

    def _count_replay_as_trained(self) -> None:
        """Count the transitions in the replay as received and trained on; a run in order counts from 0, as
        its samplers do.
        """
        if not self.in_order:
            self.gate.received = len(self.replay)
            self.gate.trained = int(self.gate.replay_ratio * self.gate.received)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`. Without the replay, updates wait for a share of its transitions to
        come again: to train on a few fresh transitions would spoil trained networks.
        """
        super().restore(state)
        self._count_replay_as_trained()
        if not len(self.replay) and not self.in_order:
            lost = min(self.counts.env_steps, self.options.replay_capacity)
            self.gate.learning_starts = max(self.gate.learning_starts, int(REFILL_SHARE * lost))
            log.warning("without its replay: updates go on after %d transitions", self.gate.learning_starts)
            self.refills = True
        self._updates_before = self.half.num_updates


class DelayExperience(ReplayExperience):
    """Trains the policy against the newest critics, one update for each ``policy_delay`` critic updates.

    In order, it follows every version of the critics with exactly the samples that they were trained on.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.gate = DelayGate(self.options.policy_delay, self.component.options["slack_updates"])
        self._critics_from = self._received = self._wanted = 0
        self._taken: Mapping[str, int] = {}

    # --- what it waits for

    def _lacks_samples(self) -> bool:
        """In order: whether samples that the critics were trained on have not been stored yet."""
        return self.in_order and self._received < self._wanted

    def _has_batch(self) -> bool:
        return len(self.replay) > 0 and not self._lacks_samples()

    def _lacks_weights(self) -> bool:
        """Whether it has followed the present critics to their end."""
        return not (self.gate.may_update or self._lacks_samples())

    @property
    def wants(self) -> bool:
        """Always, except in order: then up to the samples that the critics were trained on."""
        return not self.in_order or self._lacks_samples() or self.stopping

    @property
    def done(self) -> bool:
        """Whether it has followed the last critics of the run, after all updates that the ratio allows."""
        if self.counts.env_steps < self.enough or self.ready or self.limits.schedule is None:
            return False
        return self.gate.critic_updates == self.limits.schedule.updates_allowed(self._received)

    @property
    def owed(self) -> str:
        """Observations or critics."""
        return f"critics from {CRITIC_LEARNER}" if self._has_batch() else f"observations from {SAMPLER}"

    # --- what comes in

    def add(self, rollout: Rollout) -> None:
        """Keep the observations of one rollout."""
        self.replay.add(rollout)
        self.outlet.observe(rollout)
        self._received += rollout.num_transitions

    def meet(self, message: Message) -> None:
        """Note how far the critic-learner is."""
        updates, env_steps = message.fields["critic_updates"], message.fields["env_steps"]
        if message.incarnation != self._critics_from:
            self._critics_from = message.incarnation
            self.limits.published = None  # by the earlier critic-learner: samplers may wait for a new limit
            self.gate.meet(updates)
            self.cadence.restart()
            self.counts.env_steps = env_steps
        self.gate.hear(updates)
        self._wanted += env_steps - self.counts.env_steps
        self.counts.env_steps = env_steps
        self._taken = message.fields.get("taken", {})

    # --- an update

    def trained(self, batch: Any) -> int:
        """Note an update."""
        self.gate.actor_updates += 1
        return self.batch_size

    # --- what goes out

    def due(self) -> bool:
        """By the clock or by the count."""
        news = self.half.num_updates > self.outlet.updates or self.cadence.every > 0
        return news and self.cadence.due(self.gate.followed)

    def limits_due(self) -> bool:
        """When samplers may have used up their share."""
        return self.limits.used_up(self._taken)

    def news(self) -> dict[str, Any] | None:
        """The updates that it has followed. In order the first policy waits for the first critics."""
        if self.in_order and not self._num_weights:
            return None
        self.half.env_steps = self.counts.env_steps
        return {"critic_updates": self.gate.critic_updates, "positions": self._taken}

    def recorded(self) -> dict[str, int]:
        """Version, updates and samples."""
        counts = {"version": self.outlet.versions.newest, "actor_updates": self.half.num_updates}
        return {**counts, "env_steps": self.counts.env_steps}

    def gauges(self) -> dict[str, float]:
        """The size of the replay."""
        return {"actor_replay_size": len(self.replay)}
