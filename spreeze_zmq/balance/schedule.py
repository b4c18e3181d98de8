"""What a run does by count instead of by the clock: when weights are published, and how far each sampler may
collect under one policy. Pure arithmetic over whole numbers: no clock, no socket.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The counted course of a run, from numbers of its plan alone, so that every process knows the same one.

    Versions count the publications of the policy since the run (or what it goes on with) began; version ``v``
    has followed ``v * publish_every`` critic updates. A round is one rollout of each sampler.

    Attributes:
        replay_ratio: transitions trained on for each transition received.
        batch_size: transitions that one update trains on.
        learning_starts: transitions that must have been received before the first update.
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
        """One rollout of each sampler."""
        return self.num_samplers * self.rollout_transitions

    @property
    def first_update_at(self) -> int:
        """``learning_starts`` in whole rounds, so that samplers are level when learning begins."""
        return self.round_transitions * max(1, math.ceil(self.learning_starts / self.round_transitions))

    def updates_allowed(self, received: int) -> int:
        """Critic updates that the ratio allows once so many transitions have been received."""
        if received < self.first_update_at:
            return 0
        return int(self.replay_ratio * received // self.batch_size)

    def received_for(self, version: int) -> int:
        """Transitions that must have been received before the policy of this version can exist."""
        if version <= 0:
            return 0
        trained = version * self.publish_every * self.batch_size
        received = math.floor(trained / self.replay_ratio)
        while self.replay_ratio * received < trained:  # as the gate compares, lest rounding differs
            received += 1
        return max(self.first_update_at, received)

    def rounds_under(self, version: int) -> int:
        """Rounds that may have been collected in all under this version or older ones.

        What the next version needs is always among them, so that nobody waits for ever; what lies beyond is
        received while at most ``max_policy_lag`` newer versions exist.
        """
        needed = math.ceil(self.received_for(version + 1) / self.round_transitions)
        fresh_until = self.received_for(version + 1 + self.max_policy_lag)
        return max(needed, fresh_until // self.round_transitions)

    def collect_until(self, version: int) -> int:
        """Position in its own stream up to which each sampler may begin rollouts under this version."""
        return self.rounds_under(version) * self.rollout_transitions

    @property
    def keeps_lag(self) -> bool:
        """Whether no rollout that keeps to :meth:`collect_until` and is received in its turn is ever too old.

        A version must take a whole round at least; with lag 0, whole rounds exactly.
        """
        per_version = self.publish_every * self.batch_size / self.replay_ratio
        if self.max_policy_lag == 0:
            return (per_version / self.round_transitions).is_integer()
        return per_version >= self.round_transitions

    @property
    def share(self) -> int:
        """Transitions that one sampler may have under way without its next ones being too old on arrival."""
        per_version = self.publish_every * self.batch_size / self.replay_ratio
        return max(1, math.floor(self.max_policy_lag * per_version / self.num_samplers))

    def used_up(self, taken: Mapping[str, int], told: Mapping[str, int]) -> bool:
        """Whether a sampler may be waiting to hear that its rollouts have been taken.

        Args:
            taken: stream -> position up to which the critic-learner has taken it.
            told: the same, as the samplers have heard it last.
        """
        return any(position - told.get(stream, 0) >= self.share for stream, position in taken.items())


def updates_per_round(replay_ratio: float, batch_size: int, round_transitions: int) -> int:
    """Critic updates between two publications such that a version takes one round, or just over one."""
    return max(1, math.ceil(replay_ratio * round_transitions / batch_size))
