"""How far samplers may collect under the published policy."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.topology import dial


class CollectionLimits:
    """Keeps samplers within ``max_policy_lag`` by count.

    In order, a limit follows from the version of the policy. Otherwise a sampler may be ``Schedule.share``
    transitions ahead of the position up to which the critic-learner has taken its stream; such limits have to
    be published again when a share is used up, since the sampler waits at its limit.

    Attributes:
        schedule: the counted course of the run; None if nothing limits collection.
        by_position: whether limits follow from the positions taken.
        published: stream -> position taken, as last published; None if the samplers may not have received it.
    """

    def __init__(self, plan: Plan) -> None:
        self.schedule = dial.schedule(plan)
        self.by_position = self.schedule is not None and not plan.balance.in_order
        self.published: Mapping[str, int] | None = {}

    def collect_until(self, taken: Mapping[str, int], version: int) -> dict[str, int] | None:
        """Stream -> position up to which its sampler may begin rollouts, ``"*"`` for all; None for no limit.

        Args:
            taken: stream -> position up to which the critic-learner has taken it.
            version: new policy versions of this process after its first.
        """
        if self.schedule is None:
            return None
        self.published = taken
        if not self.by_position:
            return {"*": self.schedule.collect_until(version)}
        return {stream: position + self.schedule.share for stream, position in taken.items()}

    def used_up(self, taken: Mapping[str, int]) -> bool:
        """Whether a sampler may be waiting for a limit that follows from ``taken``."""
        if self.schedule is None or not self.by_position:
            return False
        return self.published is None or self.schedule.used_up(taken, self.published)
