"""The experience of learners that train on data alone: nothing comes from samplers or waits for them."""

from __future__ import annotations

import math
from typing import Any

from spreeze_zmq.learner.delayed import DelayExperience
from spreeze_zmq.learner.ratio import RatioExperience
from spreeze_zmq.wire import Message


class OfflineExperience(RatioExperience):
    """Trains the critics without a pause, up to the run's ``trained_transitions``."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._enough = self.component.plan.run.stop.trained_transitions or math.inf

    @property
    def wants(self) -> bool:
        """Nothing, until the run ends."""
        return self.stopping

    def rest_at(self, env_steps: int | None) -> bool:
        """Only at the end of the run, where a count of transitions trained on is that of its limit."""
        return env_steps is None or env_steps >= self._enough

    def _has_batch(self) -> bool:
        return self.counts.trained < self._enough

    def _trained_out(self) -> bool:
        return not self._has_batch()

    def news(self) -> dict[str, Any]:
        """Of critics also the transitions trained on, of which the actor-learner knows the last ones."""
        trained = {} if self.outlet.of_policy else {"trained": self.counts.trained}
        return {**super().news(), **trained}

    @property
    def owed(self) -> str:
        """A policy, or the end of the run."""
        return super().owed if self._lacks_weights() else "the end of the run"


class OfflineFollower(DelayExperience):
    """Trains the policy on data alone, against the newest critics."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._enough = self.component.plan.run.stop.trained_transitions or math.inf
        self._trained_before = 0

    def meet(self, message: Message) -> None:
        """Note also how much the critics had been trained when it met them, maybe with other batches; one
        that does not say that has always had these.
        """
        before = self._critics_from
        super().meet(message)
        if self._critics_from != before:
            in_batches = message.fields["critic_updates"] * self.batch_size
            self._trained_before = message.fields.get("trained", in_batches)

    def rest_at(self, env_steps: int | None) -> bool:
        """As the critics'."""
        return env_steps is None or env_steps >= self._enough

    def _has_batch(self) -> bool:
        return True

    @property
    def wants(self) -> bool:
        """Nothing, until the run ends."""
        return self.stopping

    @property
    def done(self) -> bool:
        """Whether it has followed the last critics that are published by count."""
        return self._has_followed_all()

    def _last_critics(self) -> int | None:
        if not self._num_weights or self._enough == math.inf:
            return None
        since = math.ceil((self._enough - self._trained_before) / self.batch_size)
        return since - since % max(1, self.balance.publish_every_updates)
