"""Roles and channels: the pattern of each channel, its binding and connecting roles, its message kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CRITIC_LEARNER, ACTOR_LEARNER = "critic_learner", "actor_learner"
BROKER, EVALUATOR, SAMPLER, VISUALIZER = "broker", "evaluator", "sampler", "visualizer"
#: The part of the algorithm that each learner trains.
PART_OF = {CRITIC_LEARNER: "critic", ACTOR_LEARNER: "policy"}
LEARNERS = tuple(PART_OF)
#: Every role in starting order: the slowest first, since a socket may connect before its peer binds.
ROLES = (*LEARNERS, BROKER, EVALUATOR, SAMPLER, VISUALIZER)
#: Roles that only observe: a run continues without them, even if they cannot start.
OBSERVERS = (VISUALIZER,)

POLICY, CRITIC, REPORT, CONTROL, FEED = "policy", "critic", "report", "control", "feed"


@dataclass(frozen=True)
class ChannelSpec:
    """One channel of the table.

    Attributes:
        pattern: ``push_pull`` (each message to one peer, blocks at the high-water mark) or ``pub_sub`` (to
            all, drops at a slow subscriber, repeats the latest message for late joiners).
        binds: the role whose process binds the endpoint; it has the ``pull`` or ``pub`` end.
        connects: the roles whose processes connect; ``*`` is every other role.
        kinds: the message kinds on this channel.
        high_water_mark: messages queued at each end before PUSH blocks or PUB drops.
        socket_buffer_bytes: kernel buffer of each end (SNDBUF, RCVBUF); 0 leaves the system's own.
    """

    pattern: Literal["push_pull", "pub_sub"]
    binds: str
    connects: tuple[str, ...]
    kinds: tuple[str, ...]
    high_water_mark: int
    socket_buffer_bytes: int = 0


def experience_of(learner: str) -> str:
    """Name of the channel that carries rollouts to a learner."""
    return f"experience.{learner}"


def publisher_of_policy(learners: Sequence[str]) -> str:
    """The learner that publishes the policy: the actor-learner if there is one."""
    return ACTOR_LEARNER if ACTOR_LEARNER in learners else CRITIC_LEARNER


def roles_of(learners: Sequence[str]) -> tuple[str, ...]:
    """The roles of a run with these learners, in the order of ``ROLES``."""
    return tuple(role for role in ROLES if role in learners or role not in LEARNERS)


def channels_of(learners: Sequence[str]) -> dict[str, ChannelSpec]:
    """The channels of a run with these learners."""
    channels = {
        experience_of(learner): ChannelSpec("push_pull", learner, (SAMPLER,), ("rollout",), 2, 16 * 1024)
        for learner in learners
    }
    publisher = publisher_of_policy(learners)
    others = tuple(learner for learner in learners if learner != publisher)
    readers = (SAMPLER, *others, EVALUATOR, VISUALIZER)
    channels[POLICY] = ChannelSpec("pub_sub", publisher, readers, ("policy",), 4)
    if others:
        channels[CRITIC] = ChannelSpec("pub_sub", CRITIC_LEARNER, (ACTOR_LEARNER,), ("critic",), 4)
    by_components = ("hello", "report", "bye", "episodes", "evaluation", "failure", "part")
    by_the_launcher = ("exited", "workers", "stop_request", "stopping")
    channels[REPORT] = ChannelSpec("push_pull", BROKER, ("*",), by_components + by_the_launcher, 1000)
    by_the_broker = ("status", "stop", "checkpoint", "scale", "set")
    channels[CONTROL] = ChannelSpec("pub_sub", BROKER, ("*",), by_the_broker, 1000)
    channels[FEED] = ChannelSpec("pub_sub", BROKER, (VISUALIZER,), ("entry",), 1000)
    return channels


#: Every channel: those of a run with both learners.
CHANNELS = channels_of(LEARNERS)

BINDING_END = {"push_pull": "pull", "pub_sub": "pub"}
OTHER_END = {"pull": "push", "push": "pull", "pub": "sub", "sub": "pub"}


def end_of(role: str, spec: ChannelSpec) -> str | None:
    """A role's end of a channel; ``None`` if it does not use the channel."""
    end = BINDING_END[spec.pattern]
    if spec.binds == role:
        return end
    return OTHER_END[end] if role in spec.connects or "*" in spec.connects else None


def ends_of(role: str, learners: Sequence[str]) -> dict[str, str]:
    """Name and end of each channel that a role uses in a run with these learners."""
    ends = {name: end_of(role, spec) for name, spec in channels_of(learners).items()}
    return {name: end for name, end in ends.items() if end is not None}
