"""The table of roles and channels: pattern, binding and connecting roles, message kinds, limits."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.files import POLICY_FILE
from spreeze_zmq.plan.processes import ChannelPlan

CRITIC_LEARNER, ACTOR_LEARNER = "critic_learner", "actor_learner"
BROKER, EVALUATOR, SAMPLER, VISUALIZER = "broker", "evaluator", "sampler", "visualizer"
FUSER, MEMBER = "fuser", "member"
OBSERVER = "observer"
#: Most seconds that it has at the end of a run that a signal ends: the broker has yet to write the run's
#: record, and 30 s after the signal Slurm (``KillWait``) and Kubernetes kill what is left.
HURRIED_S = 8.0

#: The videos of a run, and the policy that each shows.
VIDEOS = ("videos/*.safetensors", "videos/*.mp4")
#: Where ``[placement]`` puts a role: where the run was started, or any machine that joins.
HEAD, NODE = "head", "node"
#: Most processes of a run, those among them that its launcher starts here, and samplers of another machine.
MOST_PROCESSES, MOST_LAUNCHED, MOST_LENT = 2000, 200, 256
#: Role -> its option that is a deadline: it follows from what one environment took, so that no two tries have
#: it in common, and nothing is learned otherwise by it.
DEADLINES = {BROKER: "heartbeat_timeout_s", SAMPLER: "step_timeout_s"}


def without_deadlines(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a component by which runs are compared.

    Raises:
        TypeError: they are no mapping.
    """
    return {name: value for name, value in {**options}.items() if name not in DEADLINES.values()}


def _parts_of(learner: str) -> tuple[str, ...]:
    """What a learner writes into the run's folder."""
    return f"checkpoints/*/{learner}.*", f"checkpoints/*/{learner}-*", f"learning/{learner}.jsonl"


@dataclass(frozen=True)
class Role:
    """What the system knows of a role.

    Attributes:
        name: as in a topology's ``[components.NAME]``.
        stopped: its turn when a run ends; the roles of one turn are stopped together.
        trains: the part of the algorithm that it trains; empty for none.
        single: why a run has exactly one process of it; empty where it may have several.
        defaults: of the options that every component has, where it has others.
        reports: the kinds of report that come from this role alone.
        is_observer: a run goes on without it, even if it cannot start.
        stands_for: what a run that goes on without it lacks, with its number from 1 on; such a run has failed
            in part. Empty where it lacks nothing.
        without: what ends with an observer without which the run is no failure.
        keeps_off: where learners have cores of their own, it stays off them.
        orphaned: the signal that its process gets when the launcher dies.
        stays: why ``[placement]`` cannot give it to another machine; empty where it can.
        writes: the files below the run's folder that it hands to the head from another machine, as patterns
            of :func:`fnmatch.fnmatchcase` for each part of the path.
        grouped: only a run of several groups has it.
        named: only a run whose topology names it has it.
    """

    name: str
    stopped: int
    trains: str = ""
    single: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reports: tuple[str, ...] = ()
    is_observer: bool = False
    stands_for: str = ""
    without: str = ""
    keeps_off: bool = False
    orphaned: signal.Signals = signal.SIGKILL
    stays: str = ""
    writes: tuple[str, ...] = ()
    grouped: bool = False
    named: bool = False


#: Every role in starting order: the slowest first, since a socket may connect before its peer binds.
ROLES: Mapping[str, Role] = {
    role.name: role
    for role in (
        Role(
            CRITIC_LEARNER,
            stopped=1,
            trains="critic",
            single="one trains the critics; a larger algorithm.batch_size trains on more at once",
            defaults={"count": 1},
            reports=("part",),
            writes=(*_parts_of(CRITIC_LEARNER), "checkpoints/*/sampler-*.state"),
        ),
        Role(
            ACTOR_LEARNER,
            stopped=1,
            trains="policy",
            single="one trains the policy; a larger algorithm.batch_size trains on more at once",
            reports=("part",),
            writes=_parts_of(ACTOR_LEARNER),
        ),
        # The broker is idle, measures the whole machine's load, and writes the run's record at the end.
        Role(
            BROKER,
            stopped=4,
            single="one broker keeps the books of a run",
            orphaned=signal.SIGTERM,
            stays="it writes the run's record into the run's folder",
        ),
        # The evaluator plays the last policy after the run ends.
        Role(
            EVALUATOR,
            stopped=2,
            single="one evaluator names the best policy",
            defaults={"nice": 5, "stop_grace_s": 15.0},
            reports=("evaluation",),
            keeps_off=True,
            writes=(POLICY_FILE, *VIDEOS),
        ),
        Role(
            SAMPLER,
            stopped=0,
            reports=("episodes",),
            keeps_off=True,
            stays="samplers run here and on every machine that joins; spreeze join --samplers 0 takes none",
        ),
        # The page shows the last evaluation, too.
        Role(
            VISUALIZER,
            stopped=3,
            single="any number of browsers can look at one",
            defaults={"nice": 10},
            is_observer=True,
            without="the page is gone",
            keeps_off=True,
            stays="the page is served where the run was started",
        ),
        Role(
            FUSER,
            stopped=2,
            single="one fuser holds the model of all groups",
            reports=("fusion",),
            keeps_off=True,
            stays="it holds the model of all groups, where the run was started",
            grouped=True,
        ),
        # A whole set of samplers and learners below a launcher of its own.
        Role(
            MEMBER,
            stopped=2,
            # A life that ends at its start may last for minutes: its own processes are started again first.
            defaults={"stop_grace_s": 20.0, "restart_window_s": 1800.0},
            is_observer=True,
            stands_for="group {}",
            grouped=True,
        ),
        # Callbacks hear of the last evaluation, and the broker of what they ask for to the end. A logger's
        # service may be slow to take the last points.
        Role(
            OBSERVER,
            stopped=3,
            single="one observer calls all callbacks, each in a thread of its own",
            defaults={"nice": 5, "stop_grace_s": 40.0},
            is_observer=True,
            without="callbacks are called no more",
            keeps_off=True,
            stays="callbacks run where the run was started",
            named=True,
        ),
    )
}
#: The part of the algorithm that each learner trains.
PART_OF = {role.name: role.trains for role in ROLES.values() if role.trains}
LEARNERS = tuple(PART_OF)


def stop_order() -> list[tuple[str, ...]]:
    """The roles that are stopped together, in the order in which a run ends: producers first, then the
    evaluator, which plays the learners' last policy, and the broker with its records last.
    """
    turns = sorted({role.stopped for role in ROLES.values()})
    return [tuple(role.name for role in ROLES.values() if role.stopped == turn) for turn in turns]


def is_observer(name: str) -> bool:
    """Whether the process ``ROLE-INDEX`` only observes."""
    role = ROLES.get(name.rpartition("-")[0])
    return role is not None and role.is_observer


POLICY, CRITIC, REPORT, CONTROL, FEED = "policy", "critic", "report", "control", "feed"
MODELS, FUSED = "models", "fused"


def experience_of(learner: str) -> str:
    """Name of the channel that carries rollouts to a learner."""
    return f"experience.{learner}"


def publisher_of_policy(learners: Sequence[str]) -> str:
    """The learner that publishes the policy: the actor-learner if there is one."""
    return ACTOR_LEARNER if ACTOR_LEARNER in learners else CRITIC_LEARNER


def roles_of(
    learners: Sequence[str], *, grouped: bool = False, named: Collection[str] = ()
) -> tuple[str, ...]:
    """The roles of a run with these learners, ``grouped`` with other groups, in the order of ``ROLES``.
    ``named``: those that its topology names.
    """
    absent = set(LEARNERS) - set(learners)
    absent |= {role.name for role in ROLES.values() if role.named and role.name not in named}
    return tuple(
        role.name for role in ROLES.values() if role.name not in absent and (grouped or not role.grouped)
    )


def why_absent(role: str, *, grouped: bool) -> tuple[str, str]:
    """Why a run, ``grouped`` with other groups, has no process of a role, and what to write instead."""
    if ROLES[role].grouped and not grouped:
        why = "a run of one group has no process of this role"
        return why, "write groups.count = 2 for two groups, or leave this out"
    if ROLES[role].named:
        why = "a run without callbacks has no process of this role"
        return why, f"name them in components.{role}.callbacks, or leave this out"
    why = "this algorithm has no process of this role"
    return why, "one learner trains everything and publishes the policy: leave this out"


def channels_of(
    learners: Sequence[str], *, grouped: bool = False, named: Collection[str] = ()
) -> dict[str, ChannelPlan]:
    """The channels of a run with these roles, as :func:`roles_of`, before a topology changes them."""
    publisher = publisher_of_policy(learners)
    others = tuple(learner for learner in learners if learner != publisher)
    readers = (*others, EVALUATOR, SAMPLER, VISUALIZER)
    roles = roles_of(learners, grouped=grouped, named=named)
    everybody = tuple(role for role in roles if role != BROKER)
    watching = tuple(role for role in (VISUALIZER, OBSERVER) if role in roles)
    of_some = {kind for role in everybody for kind in ROLES[role].reports}
    by_components = ("hello", "report", "bye", *sorted({"failure", *of_some}), "request")
    by_the_launcher = ("exited", "workers", "machine", "turned_away", "stop_request", "stopping")
    by_the_broker = ("status", "stop", "checkpoint", "scale", "set")
    channels = {
        experience_of(learner): _channel("push_pull", learner, (SAMPLER,), ("rollout",), 2, 16 * 1024)
        for learner in learners
    }
    channels[POLICY] = _channel("pub_sub", publisher, readers, ("policy",), 4)
    if others:
        channels[CRITIC] = _channel("pub_sub", CRITIC_LEARNER, (ACTOR_LEARNER,), ("critic",), 4)
    channels[REPORT] = _channel(
        "push_pull", BROKER, everybody, by_components + by_the_launcher, 16, 16 * 1024
    )
    channels[CONTROL] = _channel("pub_sub", BROKER, everybody, by_the_broker, 1000)
    channels[FEED] = _channel("pub_sub", BROKER, watching, ("entry",), 1000)
    if grouped:
        sharing = (*learners, MEMBER)
        channels[MODELS] = _channel("push_pull", FUSER, sharing, ("model",), 4)
        channels[FUSED] = _channel("pub_sub", FUSER, sharing, ("fused",), 4)
    return channels


def _channel(
    pattern: str, binds: str, connects: tuple[str, ...], kinds: tuple[str, ...], queued: int, buffer: int = 0
) -> ChannelPlan:
    """A channel with this high-water mark and kernel buffer."""
    return ChannelPlan(pattern, binds, connects, kinds, (), None, queued, buffer, curve=False)


#: Every channel: those of a run of several groups with both learners and all roles.
CHANNELS = channels_of(LEARNERS, grouped=True, named=ROLES)

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
