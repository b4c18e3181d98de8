"""The plan: a topology with every default filled in, as run.json carries it to components in any language."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spreeze_zmq.base.endpoints import ipc_endpoint
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import read_whole
from spreeze_zmq.base.trust import MOST_BYTES
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.plan.form import from_plain, to_plain
from spreeze_zmq.plan.parts import BalancePlan, DataPlan, GroupsPlan, LearningPlan, RunPlan
from spreeze_zmq.plan.processes import ChannelPlan, ComponentPlan
from spreeze_zmq.plan.releases import other_code, other_releases
from spreeze_zmq.plan.roles import EVALUATOR, LEARNERS, MEMBER, SAMPLER, without_deadlines

#: The version of run.json; programs refuse any other.
FORMAT = 2
#: The keys of a run that other machines join, in the folder of its sockets.
KEYS_FILE = "keys.json"


@dataclass(frozen=True)
class Plan:
    """One run, every default filled in.

    Attributes:
        name: the prefix of the run folder's name.
        topology_file: the file that it was read from, absolute.
        run: what is trained, and until when.
        environment: spaces and limits of ``run.env``, probed.
        algorithm: ``name`` and every option of the algorithm.
        learning: facts about the algorithm.
        balance: the ratio and its bounds.
        components: by role, in the order in which they start.
        channels: by name.
        to_measure: keys whose values are to be measured on this machine; empty in run.json.
        measured: the measured values and their reasons; see ``plan.sizing``.
        tried: what was odd about the environment when it was tried out, see ``envs.facts``.
        timing: what one environment took, as ``envs.Timing.to_plain`` has it; empty for a described one.
        placement: role -> ``node`` for any machine that joins, or a pattern of host names; every other role
            but the sampler runs where the run was started.
        groups: the sets of samplers and learners, of which this run is one.
        data: the sources of transitions that the run does not sample itself, by name.
        left_to_node: the keys of such roles, as ``actor_learner.threads``, that their machine decides: what
            stands here fits the one where the run was started.
        replaced: a line for each number of the topology that the run does not have, and for a GPU that its
            "auto" cannot take.
        pinning: ``cpus`` of each pinned process or role, and the ``reason``; empty until launched.
        recording: role or process to record -> largest size of its recording in 10^6 bytes.
        command: arguments of ``spreeze-launch`` that made this plan, which ``--resume`` repeats; empty if
            another program made it.
        ancestors: ids of the runs that this one goes on from, the oldest first; see ``launcher.lineage``.
        launcher: the incarnation that the run's launcher has in its messages; 0 where none launches it.
        began_s: when it was begun, in seconds since 1970; 0 until placed.
        packages: the releases that it was begun with, see ``plan.releases``; empty until placed.
        own_code: of "environment" and "algorithm" the user's code that each depends on, as
            ``base.own_code.code_of`` has it.
        run_dir: the run's folder, absolute; empty until placed.
        socket_dir: the folder of ipc endpoints, absolute; empty until placed.
    """

    name: str
    topology_file: str
    run: RunPlan
    environment: EnvironmentSpec
    algorithm: dict[str, Any]
    learning: LearningPlan
    balance: BalancePlan
    components: dict[str, ComponentPlan]
    channels: dict[str, ChannelPlan]
    to_measure: tuple[str, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)
    tried: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, Any] = field(default_factory=dict, compare=False)
    placement: dict[str, str] = field(default_factory=dict)
    groups: GroupsPlan = field(default_factory=GroupsPlan)
    data: dict[str, DataPlan] = field(default_factory=dict)
    left_to_node: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    pinning: dict[str, Any] = field(default_factory=dict)
    recording: dict[str, float] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    ancestors: tuple[str, ...] = ()
    launcher: int = 0
    began_s: float = 0.0
    packages: dict[str, str] = field(default_factory=dict)
    own_code: dict[str, dict[str, str]] = field(default_factory=dict)
    run_dir: str = ""
    socket_dir: str = ""

    @property
    def offline(self) -> bool:
        """Whether no process of the run samples: it trains on data alone."""
        return self.components[SAMPLER].count.maximum == 0

    @property
    def groups_here(self) -> int:
        """How many groups of the run share the machine where it is started; 1 for a member's own plan."""
        return 1 if self.groups.number or MEMBER in self.placement else self.groups.count

    def placed(self, run_dir: Path, socket_dir: Path) -> Plan:
        """This plan with its folders; a channel without an endpoint gets an ipc one in ``socket_dir``, one
        with a remote address the keys there.

        Raises:
            ChannelError: an endpoint's path is longer than unix sockets allow.
        """
        socket_dir = socket_dir.absolute()
        channels = {
            name: replace(
                channel,
                endpoint=channel.endpoint or ipc_endpoint(socket_dir / name),
                keys=str(socket_dir / KEYS_FILE) if channel.remote else channel.keys,
            )
            for name, channel in self.channels.items()
        }
        return replace(self, run_dir=str(run_dir.absolute()), socket_dir=str(socket_dir), channels=channels)

    def carries(self, kind: str, sender: str, receiver: str) -> bool:
        """Whether a channel takes messages of a kind from one role to another."""
        for channel in self.channels.values():
            ends = (receiver, sender) if channel.pattern == "push_pull" else (sender, receiver)
            if kind in channel.kinds and channel.binds == ends[0] and ends[1] in channel.connects:
                return True
        return False

    def resuming(self, checkpoint: Path, ancestors: tuple[str, ...] = ()) -> Plan:
        """This plan, resumed from a run's folder or checkpoint, by the ids of the runs before it."""
        run = replace(self.run, resume_from=str(checkpoint.resolve()))  # a link may lead elsewhere later
        return replace(self, run=run, ancestors=ancestors)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **to_plain(self)}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Inverse of :meth:`to_json`.

        Raises:
            InputError: the text is not a plan of this format.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a run file: {error}") from None
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            raise InputError(f"not a run file of format {FORMAT}: format is {found!r}")
        plan: Plan = from_plain(cls, values, "run file")
        return plan

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a run.json.

        Raises:
            InputError: it cannot be read or is not a plan.
        """
        try:
            return cls.from_json(read_whole(Path(path), MOST_BYTES).decode())
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


#: The numbers of a run's environments, which ``{index}`` in ``env_kwargs`` stands for, no two equal: 0 is
#: tried before the run, then come the page's, that of films and windows, the evaluator's, the learners' and
#: the samplers'.
PAGE, FILM, FIRST = 1, 2, 3


def first_index(plan: Plan, role: str, index: int = 0) -> int:
    """The number of a process's first environment: the evaluator's come first, then one of each learner,
    which judges goals in hindsight, then each sampler's in turn, of several groups one of each in turn,
    however many each has.

    Args:
        plan: of the run.
        role: the evaluator, a learner or the sampler.
        index: of the process within its role.
    """
    if role == EVALUATOR:
        return FIRST
    learners = FIRST + int(plan.components[EVALUATOR].options.get("episodes", 0))
    if role in LEARNERS:
        return learners + plan.groups.number * len(LEARNERS) + LEARNERS.index(role)
    index = index * plan.groups.count + plan.groups.number
    samplers = learners + plan.groups.count * len(LEARNERS)
    return samplers + index * int(plan.components[role].options.get("envs", 1))


def facts_of(
    plan: Mapping[str, Any], compared: Callable[[Mapping[str, Any]], Any] = without_deadlines
) -> dict[str, Any]:
    """The facts of a run.json, by what they are called in words, that a run which goes on from it has to
    share to give the same numbers; of samplers' options those ``compared``.
    """
    sampler = plan["components"][SAMPLER]
    return {
        "environment": [plan["environment"], plan["run"]["randomize"]],
        "algorithm": plan["algorithm"],
        "balance": plan["balance"],
        "samplers": [sampler["count"]["initial"], compared(sampler["options"])],
        **({"data": data} if (data := plan.get("data")) else {}),
    }


def gpus_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """The kind of device of each learner of a run.json that is not on a CPU, by its role. Its numbers depend
    on that as on the :func:`facts_of` it; apart from these, as what has a digest of them may be older.
    """
    learners = {role: row for role, row in plan["components"].items() if role in LEARNERS}
    devices = {role: str(row["options"].get("device", "cpu")) for role, row in learners.items()}
    kinds = {role: device.partition(":")[0] for role, device in devices.items()}
    return {role: kind for role, kind in kinds.items() if kind != "cpu"}


def threads_of(plan: Mapping[str, Any]) -> dict[str, int]:
    """The threads of each learner of a run.json, by its role: the order of sums follows from them."""
    return {role: row["threads"] for role, row in plan["components"].items() if role in LEARNERS}


def digests_of(plan: Plan) -> list[str]:
    """A digest of the :func:`facts_of` a plan, and the one that earlier releases made, of deadlines, too."""
    tables = json.loads(plan.to_json())
    texts = [json.dumps(facts_of(tables, compared), sort_keys=True) for compared in (without_deadlines, dict)]
    return [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]


def differing(before: Mapping[str, Any], plan: Plan) -> list[str]:
    """The words of the :func:`facts_of` the run.json that a plan goes on from in which it differs, "devices"
    where its :func:`gpus_of` do, "threads of learners" where its :func:`threads_of` do, and the releases and
    the user's own code that are others here than those that it was begun with.
    """

    def compared(plan: Mapping[str, Any]) -> dict[str, Any]:
        return {**facts_of(plan), "devices": gpus_of(plan), "threads of learners": threads_of(plan)}

    here = compared(json.loads(plan.to_json()))
    try:
        there = compared(before)
    except (AttributeError, KeyError, TypeError):
        return list(here)
    words = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return words + other_releases(before.get("packages")) + other_code(before.get("own_code"), plan.own_code)
