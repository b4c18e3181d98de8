"""The experience of an off-policy actor-learner: a replay, trained on as often as the critics are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.balance import DelayGate
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.learner.replayed import ReplayExperience
from spreeze_zmq.plan.roles import CRITIC_LEARNER, SAMPLER
from spreeze_zmq.wire import Message


class DelayExperience(ReplayExperience):
    """Trains the policy against the newest critics, one update for each ``policy_delay`` critic updates.

    In order, it follows every version of the critics with exactly the samples that they were trained on; at
    the end of the run it takes the samples of the last rounds, too, which the next version would want.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.gate = DelayGate(self.options.policy_delay, self.component.options["slack_updates"])
        self._critics_from = self._received = self._wanted = 0
        self._goes_on = False
        self._taken: Mapping[str, int] = {}

    # --- what it waits for

    def _lacks_samples(self) -> bool:
        """In order: whether samples that the critics were trained on have not been stored yet."""
        return self.in_order and self._received < self._wanted

    def _has_batch(self) -> bool:
        return len(self.replay) > 0 and self.replay.num_sampled >= self.refill and not self._lacks_samples()

    def _lacks_weights(self) -> bool:
        """Whether it has followed the present critics to their end."""
        return not (self.gate.may_update or self._lacks_samples())

    @property
    def wants(self) -> bool:
        """Always, except in order: then up to the samples that the critics were trained on, and when all
        critics of the run have come up to the last sample.
        """
        if not self.in_order or self._lacks_samples() or self.stopping:
            return True
        return self._has_followed_all() and self._received < self.enough - self.begun

    @property
    def done(self) -> bool:
        """Whether it has followed the last critics of the run, and has all samples."""
        return self._has_followed_all() and self._received >= self.enough - self.begun

    def _has_followed_all(self) -> bool:
        """In order: whether the last version of the critics in this run has come, and been followed."""
        last = self._last_critics()
        return last is not None and self.gate.critic_updates >= last and not self.ready

    def _last_critics(self) -> int | None:
        """In order: the updates of the last version of the critics in this run; None where none is known."""
        schedule, transitions = self.limits.schedule, self.enough - self.begun
        if schedule is None or not self._num_weights or transitions == math.inf:
            return None
        return schedule.updates_allowed(int(transitions)) // schedule.publish_every * schedule.publish_every

    def _is_beyond(self) -> bool:
        last = self._last_critics()
        ahead = last is not None and self.gate.critic_updates > last
        return ahead or self._received > self.enough - self.begun

    @property
    def wants_weights(self) -> bool:
        """As always, but not those beyond a count at which it is to be done."""
        return super().wants_weights and not (self.in_order and self._has_followed_all())

    @property
    def owed(self) -> str:
        """Observations or critics."""
        return f"critics from {CRITIC_LEARNER}" if self._has_batch() else f"observations from {SAMPLER}"

    # --- what comes in

    def add(self, rollout: Rollout) -> None:
        """Keep the observations of one rollout."""
        before = self.replay.num_sampled
        self.replay.add(rollout)
        self.outlet.observe(rollout)
        self._received += rollout.num_transitions
        if before < self.refill <= self.replay.num_sampled:
            self.gate.meet_again()
            self.cadence.restart()

    def meet(self, message: Message) -> None:
        """Note how far the critic-learner is."""
        updates, env_steps = message.fields["critic_updates"], message.fields["env_steps"]
        if self._goes_on:  # with the critics of the run before
            self._critics_from, self._goes_on = message.incarnation, False
        if message.incarnation != self._critics_from:
            self._critics_from = message.incarnation
            self.limits.published = None  # by the earlier critic-learner: samplers may wait for a new limit
            self.gate.meet(updates)
            self.cadence.restart()
            self.begun = self.counts.env_steps = env_steps
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

    # --- what is kept

    def order(self) -> dict[str, Any]:
        """Also how far it has followed the critics, and where it counts from."""
        own = {"gate": self.gate.state(), "received": self._received, "wanted": self._wanted}
        return {**super().order(), **own, "begun": self.begun}

    def go_on(self, order: Mapping[str, Any]) -> int:
        """Also with the critics of the run before."""
        super().go_on(order)
        self.gate.restore(order["gate"])
        self._received, self._wanted, self.begun = order["received"], order["wanted"], order["begun"]
        self._goes_on = True
        return self._received // self.component.plan.components[SAMPLER].count.initial
