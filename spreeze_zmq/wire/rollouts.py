"""Converts a rollout to the message that carries it, and back."""

from __future__ import annotations

from collections.abc import Iterable

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.wire.frames import Message


def rollout_message(rollout: Rollout, names: Iterable[str] | None = None) -> Message:
    """A message with the arrays of ``rollout`` in ``names``, by default all; none is copied."""
    return Message(
        kind="rollout",
        fields={
            "produced": rollout.produced,
            "policy_version": rollout.policy_version,
            "num_steps": rollout.num_steps,
            "num_envs": rollout.num_envs,
        },
        arrays=rollout.arrays(names),
        sender=rollout.sampler,
        incarnation=rollout.incarnation,
        sequence=rollout.sequence,
    )


def rollout_from(message: Message) -> Rollout:
    """The rollout in a message from ``decode``, which has checked its shapes against ``T`` and ``N``.

    Raises:
        WireError: the message has another kind.
    """
    if message.kind != "rollout":
        raise WireError("wrong_kind", f"a {message.kind} message where a rollout was expected")
    fields = message.fields
    return Rollout(
        sampler=message.sender,
        incarnation=message.incarnation,
        sequence=message.sequence,
        produced=fields["produced"],
        policy_version=fields["policy_version"],
        num_steps=fields["num_steps"],
        num_envs=fields["num_envs"],
        **{name: message.arrays[name] for name in ARRAY_FIELDS if name in message.arrays},
    )
