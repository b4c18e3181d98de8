"""Roles and channels: the pattern of each channel, who binds, who connects, which messages travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CRITIC_LEARNER, ACTOR_LEARNER = "critic_learner", "actor_learner"
BROKER, EVALUATOR, SAMPLER, VISUALIZER = "broker", "evaluator", "sampler", "visualizer"
#: The learners, by the part of the algorithm that each trains.
LEARNER_OF = {"critic": CRITIC_LEARNER, "policy": ACTOR_LEARNER}
PART_OF = {role: part for part, role in LEARNER_OF.items()}
LEARNERS = tuple(PART_OF)
#: Every role, in the order of starting: the slowest first, since a socket may connect before its peer binds.
ROLES = (*LEARNERS, BROKER, EVALUATOR, SAMPLER, VISUALIZER)
#: Roles that only look: a run goes on without them, also where they cannot be started.
OBSERVERS = (VISUALIZER,)

POLICY, CRITIC, REPORT, CONTROL, FEED = "policy", "critic", "report", "control", "feed"


@dataclass(frozen=True)
class ChannelSpec:
    """One channel of the table.

    Attributes:
        pattern: ``push_pull`` (each message to one peer, blocks at the high-water mark) or ``pub_sub`` (to
            all, drops at a slow subscriber, repeats the latest message for late joiners).
        binds: the role whose process binds the endpoint.
        binder_end: the binder's end of the pattern.
        connects: the roles whose processes connect; ``*`` is every other role.
        kinds: the message kinds on this channel.
        high_water_mark: messages queued at each end before PUSH blocks or PUB drops.
        socket_buffer_bytes: kernel buffer of each end (SNDBUF, RCVBUF); 0 leaves the system's own.
    """

    pattern: Literal["push_pull", "pub_sub"]
    binds: str
    binder_end: Literal["pull", "pub"]
    connects: tuple[str, ...]
    kinds: tuple[str, ...]
    high_water_mark: int
    socket_buffer_bytes: int = 0


def experience_of(learner: str) -> str:
    """Name of the channel that carries rollouts to a learner."""
    return f"experience.{learner}"


def publisher_of_policy(learners: Sequence[str]) -> str:
    """The learner that publishes the policy: the actor-learner where there is one."""
    return ACTOR_LEARNER if ACTOR_LEARNER in learners else CRITIC_LEARNER


def roles_of(learners: Sequence[str]) -> tuple[str, ...]:
    """The roles of a run with these learners, in the order of ``ROLES``."""
    return tuple(role for role in ROLES if role in learners or role not in LEARNERS)


def channels_of(learners: Sequence[str]) -> dict[str, ChannelSpec]:
    """The channels of a run with these learners."""
    channels = {
        experience_of(learner): ChannelSpec(
            "push_pull", learner, "pull", (SAMPLER,), ("rollout",), 2, 16 * 1024
        )
        for learner in learners
    }
    publisher = publisher_of_policy(learners)
    others = tuple(learner for learner in learners if learner != publisher)
    takers = (SAMPLER, *others, EVALUATOR, VISUALIZER)
    channels[POLICY] = ChannelSpec("pub_sub", publisher, "pub", takers, ("policy",), 4)
    if others:
        channels[CRITIC] = ChannelSpec("pub_sub", CRITIC_LEARNER, "pub", (ACTOR_LEARNER,), ("critic",), 4)
    channels[REPORT] = ChannelSpec(
        "push_pull",
        BROKER,
        "pull",
        ("*",),
        (
            *("hello", "report", "bye", "episodes", "evaluation", "failure", "part"),
            *("exited", "workers", "stop_request", "stopping"),
        ),
        1000,
    )
    channels[CONTROL] = ChannelSpec(
        "pub_sub", BROKER, "pub", ("*",), ("status", "stop", "checkpoint", "scale", "set"), 1000
    )
    channels[FEED] = ChannelSpec("pub_sub", BROKER, "pub", (VISUALIZER,), ("entry",), 1000)
    return channels


#: Every channel: those of a run with both learners.
CHANNELS = channels_of(LEARNERS)

OTHER_END = {"pull": "push", "push": "pull", "pub": "sub", "sub": "pub"}


def end_of(role: str, spec: ChannelSpec) -> str | None:
    """A role's end of a channel; ``None`` where it does not use it."""
    if spec.binds == role:
        return spec.binder_end
    return OTHER_END[spec.binder_end] if role in spec.connects or "*" in spec.connects else None


def ends_of(role: str, learners: Sequence[str]) -> dict[str, str]:
    """Name and end of each channel that a role uses in a run with these learners."""
    ends = {name: end_of(role, spec) for name, spec in channels_of(learners).items()}
    return {name: end for name, end in ends.items() if end is not None}
