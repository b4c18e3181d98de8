"""Where the policies come from that the page plays: a live run, or a file."""

from __future__ import annotations

import secrets
from collections.abc import Generator

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import POLICY
from spreeze_zmq.policy import Policy, usable
from spreeze_zmq.wire import channels

#: Yields the newest policy, or None if there is none since the last one; ``close`` releases what it holds.
Policies = Generator[Policy | None, None, None]


def live_policies(plan: Plan, name: str) -> Policies:
    """The policies of a live run. Each subscriber costs the publisher a copy: iterate only while somebody
    watches, and close it afterwards.

    Args:
        plan: the run's plan.
        name: the subscriber's name, for its log.
    """
    incarnation = secrets.randbelow(2**53 - 1) + 1
    channel = channels.open_channel(plan.channels[POLICY], "sub", name, incarnation)
    assert isinstance(channel, channels.Subscriber)
    try:
        while True:
            message = channel.newest(answer_timeout_s=0.01)
            if message is None:
                yield None
                continue
            with usable(message.fields["version"]):
                policy = Policy.of_average(message.fields, message.arrays)
            yield policy
    finally:
        channel.close()


def given_policy(policy: Policy | None) -> Policies:
    """One policy, at first."""
    yield policy
    while True:
        yield None
