"""How old the rollouts are that a learner receives, in versions of the policy, and which are too old."""

from __future__ import annotations

from typing import Protocol

from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.learner.publication import Cadence
from spreeze_zmq.rollout import Rollout


class KnownPolicies(Protocol):
    """What is known of the published policies; :class:`spreeze_zmq.component.Weights` fits."""

    in_turn: bool
    num_taken: int

    @property
    def version(self) -> int:
        """Of the newest one taken."""


class Staleness:
    """Measures rollouts by the newest policy that this learner knows.

    Args:
        bound: versions that a rollout may be behind; None for any.
        policies: what has been taken of the policy's channel.
        cadence: of the critics, whose publications the versions follow where they are taken in turn.
    """

    def __init__(self, bound: int | None, policies: KnownPolicies, cadence: Cadence) -> None:
        self.bound = bound
        self.received = LagHistogram()
        self._policies, self._cadence = policies, cadence
        self._first = 0

    def begin(self) -> None:
        """The first policy has been taken."""
        self._first = self._policies.version

    def lag(self, rollout: Rollout) -> int:
        """Versions that a rollout's policy is behind the newest one known. In turn that is the one that the
        actor-learner makes of the critics published last, though it is taken only when its turn comes.
        """
        newest = self._policies.version
        if self._policies.in_turn:
            newest = self._first + self._cadence.published
        return newest - rollout.policy_version

    def too_stale(self, rollout: Rollout) -> str:
        """Why a rollout is dropped at the moment it is received; empty where it is fresh enough."""
        if self.bound is None:
            return ""
        if self._policies.num_taken == 0:
            return "nobody has said yet which policy is the newest"
        lag = self.lag(rollout)
        return f"{lag} versions behind, max_policy_lag is {self.bound}" if lag > self.bound else ""

    def add(self, rollout: Rollout) -> None:
        """Count the transitions of a rollout that was received."""
        self.received.add(self.lag(rollout), rollout.num_transitions)
