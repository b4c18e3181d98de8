"""The one table of channels: pattern, who binds, who connects, what travels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Every role that a component can have, in the order in which processes start: who takes longest first, since
#: a
#: socket may connect before or after its peer binds.
ROLES = ("critic_learner", "actor_learner", "broker", "evaluator", "sampler")


@dataclass(frozen=True)
class ChannelSpec:
    """One channel of the table.

    Attributes:
        pattern: ``push_pull`` (every message to one peer, blocks at the high-water mark) or ``pub_sub`` (to
            all, drops at a slow subscriber; late joiners are sent the latest message again).
        binds: the role whose process binds the endpoint.
        binder_end: which end of the pattern the binder holds.
        connects: the roles whose processes connect; ``*`` for every other one.
        kinds: the message kinds that travel on it.
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


CHANNELS: dict[str, ChannelSpec] = {
    "experience.critic_learner": ChannelSpec(
        "push_pull", "critic_learner", "pull", ("sampler",), ("rollout",), 2, 16 * 1024
    ),
    "experience.actor_learner": ChannelSpec(
        "push_pull", "actor_learner", "pull", ("sampler",), ("rollout",), 2, 16 * 1024
    ),
    "policy": ChannelSpec(
        "pub_sub", "actor_learner", "pub", ("sampler", "critic_learner", "evaluator"), ("policy",), 4
    ),
    "critic": ChannelSpec("pub_sub", "critic_learner", "pub", ("actor_learner",), ("critic",), 4),
    "report": ChannelSpec(
        "push_pull",
        "broker",
        "pull",
        ("*",),
        (
            *("hello", "report", "bye", "episodes", "evaluation", "failure", "part"),
            *("exited", "workers", "stop_request", "stopping"),
        ),
        1000,
    ),
    "control": ChannelSpec(
        "pub_sub", "broker", "pub", ("*",), ("status", "stop", "pause", "checkpoint", "scale", "set"), 1000
    ),
}
