"""Where the page's agent has its policy from: the live run's channel, or one policy of a run that is over."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from spreeze_zmq import channels
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.policy import Policy, usable


class Policies(Protocol):
    """Gives the newest policy."""

    def newest(self) -> Policy | None:
        """A policy that is newer than the last one given; None where there is none."""

    def close(self) -> None:
        """Release what it holds."""


class LivePolicies:
    """The policies of a live run. Every subscriber costs the publisher a copy: open it while somebody looks.

    Args:
        plan: the run's.
        name: the subscriber's, for its log.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        incarnation = secrets.randbelow(2**53 - 1) + 1
        self._channel: Any = channels.open_channel(plan.channels[POLICY], "sub", name, incarnation)

    def newest(self) -> Policy | None:
        """The last policy that has come since the last call."""
        message = self._channel.newest(answer_timeout_s=0.01)
        if message is None:
            return None
        with usable(message.fields["version"]):
            return Policy.from_message(message.fields, message.arrays)

    def close(self) -> None:
        """Leave the channel."""
        self._channel.close()


class GivenPolicy:
    """One policy, given once."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy

    def newest(self) -> Policy | None:
        """The policy at the first call."""
        policy, self._policy = self._policy, None
        return policy

    def close(self) -> None:
        """Nothing to release."""
