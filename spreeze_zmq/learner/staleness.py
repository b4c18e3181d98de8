"""The age of received rollouts in policy versions, and which of them are too old."""

from __future__ import annotations

from typing import Protocol

from spreeze_zmq.balance import LagHistogram
from spreeze_zmq.learner.publication import Cadence
from spreeze_zmq.rollout import Rollout


class KnownPolicies(Protocol):
    """The published policies that a learner knows; :class:`spreeze_zmq.component.Weights` fits."""

    in_turn: bool
    num_taken: int

    @property
    def version(self) -> int:
        """Version of the newest one taken."""


class Staleness:
    """Measures the lag of rollouts behind the newest policy that this learner knows.

    Args:
        bound: largest lag in versions; None for no bound.
        policies: those taken from the policy channel.
        cadence: of the critics; in turn, each of its publications leads to one policy version.
    """

    def __init__(self, bound: int | None, policies: KnownPolicies, cadence: Cadence) -> None:
        self.bound = bound
        self.received = LagHistogram()
        self._policies, self._cadence = policies, cadence
        self._first = 0

    def begin(self) -> None:
        """Note the version of the first policy, which has just been taken."""
        self._first = self._policies.version

    def lag(self, rollout: Rollout) -> int:
        """Versions that a rollout's policy is behind the newest one. In turn, the newest is the one that the
        actor-learner makes from the critics published last, even before it has been taken.
        """
        newest = self._policies.version
        if self._policies.in_turn:
            newest = self._first + self._cadence.published
        return newest - rollout.policy_version

    def too_stale(self, rollout: Rollout) -> str:
        """Why a rollout is dropped when it is received; empty if it is fresh enough."""
        if self.bound is None:
            return ""
        if self._policies.num_taken == 0:
            return "the newest policy is not known yet"
        lag = self.lag(rollout)
        return f"{lag} versions behind, max_policy_lag is {self.bound}" if lag > self.bound else ""

    def add(self, rollout: Rollout) -> None:
        """Count the transitions of a received rollout by their lag."""
        self.received.add(self.lag(rollout), rollout.num_transitions)
