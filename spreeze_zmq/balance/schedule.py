"""Counted runs: after how many updates weights are published, and how far each sampler may collect under one
policy. Pure arithmetic on whole numbers: no clock, no socket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The course of a run by count. It follows from the plan alone, so that every process computes the same.

    Versions count the publications of the policy since the run was started or resumed; version ``v`` has
    followed ``v * publish_every`` critic updates. A round is one rollout of each sampler.

    Attributes:
        replay_ratio: transitions trained on for each transition received once it counts.
        batch_size: transitions that one update trains on.
        learning_starts: transitions that must have been received before the ratio counts.
        publish_every: critic updates between two publications.
        max_policy_lag: versions that a rollout's policy may be behind when it is received.
        num_samplers: rollouts in a round.
        rollout_transitions: transitions of one rollout.
    """

    replay_ratio: float
    batch_size: int
    learning_starts: int
    publish_every: int
    max_policy_lag: int
    num_samplers: int
    rollout_transitions: int

    @property
    def round_transitions(self) -> int:
        """Transitions of one rollout of each sampler."""
        return self.num_samplers * self.rollout_transitions

    @property
    def counted_from(self) -> int:
        """``learning_starts`` rounded up to whole rounds, so that all samplers have sent equally much: the
        ratio counts what is received beyond.
        """
        return self.round_transitions * max(1, math.ceil(self.learning_starts / self.round_transitions))

    def updates_allowed(self, received: int) -> int:
        """Critic updates that the ratio allows once ``received`` transitions have come."""
        return int(self.replay_ratio * max(0, received - self.counted_from) // self.batch_size)

    def received_for(self, version: int) -> int:
        """Transitions that must have been received before the policy of this version can exist."""
        if version <= 0:
            return 0
        trained = version * self.publish_every * self.batch_size
        counted = math.floor(trained / self.replay_ratio)
        while self.replay_ratio * counted < trained:  # the gate's own comparison, with the same rounding
            counted += 1
        return self.counted_from + counted

    def rounds_under(self, version: int) -> int:
        """Rounds that may be collected in total under this version or older ones.

        They always include what the next version needs, so that the run cannot deadlock. Rounds beyond that
        are received while at most ``max_policy_lag`` newer versions exist.
        """
        needed = math.ceil(self.received_for(version + 1) / self.round_transitions)
        fresh_until = self.received_for(version + 1 + self.max_policy_lag)
        return max(needed, fresh_until // self.round_transitions)

    def collect_until(self, version: int) -> int:
        """Position in each sampler's stream up to which it may begin rollouts under this version."""
        return self.rounds_under(version) * self.rollout_transitions

    @property
    def keeps_lag(self) -> bool:
        """Whether rollouts within :meth:`collect_until` that are received in turn are never too old.

        A version must take at least one round; with ``max_policy_lag`` 0 exactly a number of whole rounds.
        """
        if self.max_policy_lag == 0:
            return (self._transitions_per_version / self.round_transitions).is_integer()
        return self._transitions_per_version >= self.round_transitions

    @property
    def share(self) -> int:
        """Transitions that one sampler may have under way such that the next ones arrive fresh enough."""
        return max(1, math.floor(self.max_policy_lag * self._transitions_per_version / self.num_samplers))

    @property
    def _transitions_per_version(self) -> float:
        return self.publish_every * self.batch_size / self.replay_ratio

    def used_up(self, taken: Mapping[str, int], published: Mapping[str, int]) -> bool:
        """Whether a sampler may have used up its share and wait for a new limit.

        Args:
            taken: stream -> position up to which the critic-learner has taken it.
            published: the same, as last published to the samplers.
        """
        return any(position - published.get(stream, 0) >= self.share for stream, position in taken.items())


def updates_per_round(replay_ratio: float, batch_size: int, round_transitions: int) -> int:
    """Critic updates between two publications, the fewest for which a version takes at least one round."""
    return max(1, math.ceil(replay_ratio * round_transitions / batch_size))
