"""The table of roles and channels: pattern, binding and connecting roles, message kinds, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spreeze_zmq.plan.parts import ChannelPlan

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


def experience_of(learner: str) -> str:
    """Name of the channel that carries rollouts to a learner."""
    return f"experience.{learner}"


def publisher_of_policy(learners: Sequence[str]) -> str:
    """The learner that publishes the policy: the actor-learner if there is one."""
    return ACTOR_LEARNER if ACTOR_LEARNER in learners else CRITIC_LEARNER


def roles_of(learners: Sequence[str]) -> tuple[str, ...]:
    """The roles of a run with these learners, in the order of ``ROLES``."""
    return tuple(role for role in ROLES if role in learners or role not in LEARNERS)


def channels_of(learners: Sequence[str]) -> dict[str, ChannelPlan]:
    """The channels of a run with these learners, before a topology changes them."""
    publisher = publisher_of_policy(learners)
    others = tuple(learner for learner in learners if learner != publisher)
    readers = (*others, EVALUATOR, SAMPLER, VISUALIZER)
    everybody = tuple(role for role in roles_of(learners) if role != BROKER)
    by_components = ("hello", "report", "bye", "episodes", "evaluation", "failure", "part")
    by_the_launcher = ("exited", "workers", "stop_request", "stopping")
    by_the_broker = ("status", "stop", "checkpoint", "scale", "set")
    channels = {
        experience_of(learner): _channel("push_pull", learner, (SAMPLER,), ("rollout",), 2, 16 * 1024)
        for learner in learners
    }
    channels[POLICY] = _channel("pub_sub", publisher, readers, ("policy",), 4)
    if others:
        channels[CRITIC] = _channel("pub_sub", CRITIC_LEARNER, (ACTOR_LEARNER,), ("critic",), 4)
    channels[REPORT] = _channel("push_pull", BROKER, everybody, by_components + by_the_launcher, 1000)
    channels[CONTROL] = _channel("pub_sub", BROKER, everybody, by_the_broker, 1000)
    channels[FEED] = _channel("pub_sub", BROKER, (VISUALIZER,), ("entry",), 1000)
    return channels


def _channel(
    pattern: str, binds: str, connects: tuple[str, ...], kinds: tuple[str, ...], queued: int, buffer: int = 0
) -> ChannelPlan:
    """A channel with this high-water mark and kernel buffer."""
    return ChannelPlan(pattern, binds, connects, kinds, (), None, queued, buffer, curve=False)


#: Every channel: those of a run with both learners.
CHANNELS = channels_of(LEARNERS)

BINDING_END = {"push_pull": "pull", "pub_sub": "pub"}
OTHER_END = {"pull": "push", "push": "pull", "pub": "sub", "sub": "pub"}


def ends_of(role: str, channels: Mapping[str, ChannelPlan]) -> dict[str, str]:
    """Name and end of each channel that a role uses."""
    ends = {}
    for name, channel in channels.items():
        end = BINDING_END[channel.pattern]
        if channel.binds == role:
            ends[name] = end
        elif role in channel.connects:
            ends[name] = OTHER_END[end]
    return ends
