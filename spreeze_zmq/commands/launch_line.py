"""The command line of ``spreeze-launch``, and the plan that it asks for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spreeze_zmq import __version__
from spreeze_zmq.base.errors import InputError, Mistake
from spreeze_zmq.base.schema import show, suggestion
from spreeze_zmq.commands.arguments import Parser, add_set
from spreeze_zmq.commands.check import FirstLook, endless, may_be_stopped
from spreeze_zmq.nodes.listening import check_listening, need_no_machine
from spreeze_zmq.nodes.placers import Way, read_nodes
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.roles import OBSERVER, SAMPLER, why_absent
from spreeze_zmq.plan.topology.document import read_source, shipped_topologies, split_key
from spreeze_zmq.plan.topology.tables import Key
from spreeze_zmq.run.folder import RunFolder

WHAT = (
    "``spreeze-launch TOPOLOGY``, or ``--env ID``: validate, start every process, supervise, show, clean up."
)
#: Largest size of a recording in 10^6 bytes, where none is written.
RECORD_MB = 1000.0


def parser() -> Parser:
    """What ``spreeze-launch`` takes."""
    found = Parser("spreeze-launch", description=WHAT)
    found.add_argument(
        "topology", metavar="TOPOLOGY", nargs="?", help="a .toml file, or the name of a shipped one (--list)"
    )
    found.add_argument("--env", metavar="ID", help="train in this environment, without a topology file")
    found.add_argument(
        "--algorithm",
        metavar="NAME",
        help="a shipped one such as sac, or my_module:MyAlgorithm (default: the topology's, or one that "
        "suits the spaces)",
    )
    add_set(found)
    found.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="ROLE",
        help="do not start this role: its place is left free, and the command that joins is printed",
    )
    found.add_argument(
        "--seeds", type=int, metavar="N", help="N runs one after another, with seed, seed + 1 and so on"
    )
    found.add_argument("--check", action="store_true", help="validate only; start nothing")
    found.add_argument("--graph", action="store_true", help="print processes and channels; start nothing")
    found.add_argument("--run-dir", metavar="DIR", help="the run's folder (default: runs/NAME-TIME)")
    found.add_argument(
        "--resume",
        metavar="RUN",
        help="go on from the last complete checkpoint of that run's folder, as it was begun where neither "
        "TOPOLOGY nor --env is given",
    )
    found.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="PROCESS",
        help="keep every message of this role, or of one process such as sampler-0, for spreeze replay",
    )
    found.add_argument(
        "--record-mb",
        type=float,
        metavar="N",
        help=f"largest size of each recording in 10^6 bytes; the rest is left out (default: {RECORD_MB:g})",
    )
    found.add_argument(
        "--callback",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="have a class that inherits spreeze_zmq.Callback called with what the run says, in a process of "
        "its own; may be repeated (instead of components.observer.callbacks of the topology)",
    )
    found.add_argument(
        "--inproc",
        action="store_true",
        help="run the components as threads of this one process, for one debugger; slower",
    )
    found.add_argument(
        "--listen",
        metavar="ADDRESS",
        default="",
        help="let other machines join at this machine's ADDRESS, or ADDRESS:PORT-PORT, by spreeze join",
    )
    found.add_argument(
        "--nodes",
        metavar="WHERE",
        help="with --listen: keep spreeze join running on other machines: ssh:HOST,HOST, or ray for those of "
        "a Ray cluster (ray:HOST:PORT at that address, ray,LABEL=VALUE with that label), or slurm for those "
        "of its job",
    )
    found.add_argument(
        "--dry-run",
        action="store_true",
        help="with --nodes slurm: print the script for sbatch; start nothing",
    )
    found.add_argument("--list", action="store_true", help="print the shipped topologies; start nothing")
    found.add_argument("--observed", action="store_true", help=argparse.SUPPRESS)  # by a script's callbacks
    found.set_defaults(beside="", ways=())
    found.add_argument("--version", action="version", version=__version__)
    return found


def load(arguments: argparse.Namespace, look: FirstLook, overrides: Sequence[str] = ()) -> Plan:
    """The plan that the command line asks for; modules and paths of ``--env`` are in ``arguments.beside``.

    Raises:
        InputError: neither or both of TOPOLOGY and ``--env`` are given, or there are mistakes in them.
    """
    if (arguments.topology is None) == (arguments.env is None):
        got = "neither" if arguments.env is None else "both"
        raise InputError(f"expected a TOPOLOGY or --env ID, got {got} (--list prints the shipped topologies)")
    source: str | Mapping[str, Any] = arguments.topology or {"run": {"env": arguments.env}}
    chosen = [f"run.algorithm={json.dumps(arguments.algorithm)}"] if arguments.algorithm else []
    arguments.callback = list(dict.fromkeys(arguments.callback))  # of a resumed run and the one before
    named = json.dumps(arguments.callback, ensure_ascii=False)
    chosen += [f"components.{OBSERVER}.callbacks={named}"] if arguments.callback else []
    overrides = [*chosen, *arguments.set, *overrides]
    plan = topology.load(source, overrides, without=arguments.without, look=look, beside=arguments.beside)
    for role in arguments.without:
        if role not in plan.components:
            why = why_absent(role, grouped=plan.groups.count > 1)
            raise InputError(str(Mistake(f"--without {role}", *why)))
    if OBSERVER in plan.components:
        _check_callbacks(plan.components[OBSERVER].options.get("callbacks", ()))
    if arguments.record_mb is not None and not arguments.record:
        raise InputError("--record-mb is the size of a recording: write --record PROCESS, or leave it out")
    record_mb = RECORD_MB if arguments.record_mb is None else arguments.record_mb
    for name in arguments.record:
        _check_recorded(plan, name, record_mb)
    if arguments.inproc and plan.groups.count > 1:
        raise InputError("--inproc runs one group in this process: write groups.count = 1, or leave it out")
    if arguments.inproc:
        tables = read_source(source, overrides, arguments.beside).values
        plan = _in_threads(plan, tables.get("components", {}))
    recording = dict.fromkeys(arguments.record, record_mb)
    return replace(plan, recording=recording, command=_command(arguments, plan))


def check_line(arguments: argparse.Namespace, plan: Plan) -> tuple[Way, ...]:
    """The commands that make the machines of ``--nodes`` join; of Slurm's, with ``--check``, none: that is
    given where there is no job yet.

    Raises:
        InputError: the line asks of a run what it cannot have; nothing has been made or opened.
    """
    ways: tuple[Way, ...] = ()
    if arguments.seeds is not None:
        _check_seeds(arguments, plan)
    if arguments.run_dir:
        given = Path(arguments.run_dir)
        several = arguments.seeds is not None
        for folder in seeds_in(given, arguments, plan).values() if several else (given,):
            RunFolder.check_new(folder)
    if arguments.nodes:
        ways = read_nodes(arguments.nodes, arguments.listen, in_job=not arguments.check)
    if arguments.listen:
        check_listening(arguments.listen, plan)
    else:
        need_no_machine(plan)
    return ways


def seeds_in(parent: Path, arguments: argparse.Namespace, plan: Plan) -> dict[int, Path]:
    """Each of ``--seeds``, and its run's folder in ``parent``."""
    return {seed: parent / f"seed-{seed}" for seed in range(plan.run.seed, plan.run.seed + arguments.seeds)}


def _check_seeds(arguments: argparse.Namespace, plan: Plan) -> None:
    """Raise InputError for a run that cannot be one of several."""
    if arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds}: at least 1 is expected")
    if arguments.resume:
        raise InputError("--seeds N makes N new runs, and --resume goes on with one: leave one of them out")
    if arguments.listen:
        raise InputError("--seeds N ends each run, and with it the machines that joined: leave --listen out")
    if (never := endless(plan)) and not may_be_stopped(plan):
        raise InputError(f"--seeds N: the first run would never end: {never}")


def _check_callbacks(names: Sequence[str]) -> None:
    """Raise InputError if one of them is no callback."""
    from spreeze_zmq.callbacks.named import kind_of  # a run without callbacks needs none of it

    for name in names:
        kind_of(name)


def _in_threads(plan: Plan, written: Mapping[str, Mapping[str, Any]]) -> Plan:
    """The plan with its initial counts fixed, as rates of threads that share one interpreter are no guide to
    the number of processes; and with a line for each key of ``[components]`` that is written and that no
    thread heeds.
    """
    lines = []
    for role, component in plan.components.items():
        count, table = component.count, written.get(role, {})
        is_thread = component.use == role and not component.on_demand
        reasons = {
            "count": f"it is {count.initial}" if count.minimum < count.maximum else "",
            "nice": "threads have the priority of their process" if is_thread else "",
            "start_timeout_s": "nothing is given up, as it may stand at a breakpoint",
        }
        lines += [
            f"components.{role}.{name} = {show(table[name])} has no effect with --inproc: {why}"
            for name, why in reasons.items()
            if why and table.get(name, "auto") != "auto"
        ]
    components = {
        role: replace(component, count=Count(*(component.count.initial,) * 3))
        for role, component in plan.components.items()
    }
    return replace(plan, components=components, replaced=(*plan.replaced, *lines))


def _check_recorded(plan: Plan, name: str, limit_mb: float) -> None:
    """Raise InputError if a ``--record`` names no process of the plan, or ``--record-mb`` is not positive."""
    role, dash, index = name.rpartition("-")
    if name not in plan.components and not (
        dash and role in plan.components and index.isdecimal() and index == str(int(index))
    ):
        expected = f"a role or a process such as {SAMPLER}-0"
        raise InputError(f"--record {name}: expected {expected} ({suggestion(name, plan.components)})")
    if name not in plan.components and int(index) >= plan.components[role].count.maximum:
        most = plan.components[role].count.maximum
        raise InputError(f"--record {name}: this run has at most {most} of {role}, numbered from 0")
    role = name if name in plan.components else role
    if role in plan.placement:
        raise InputError(
            f"--record {name}: placement.{role} has it run on another machine, and only what runs here is "
            f"recorded: set placement.{role} to head, or record a process that it talks to"
        )
    if not limit_mb > 0:
        raise InputError(f"--record-mb {limit_mb:g}: a size above 0 is expected")


def not_recorded(plan: Plan, *, listens: bool) -> str:
    """What ``--record`` leaves out of what it names, in words; empty for nothing.

    Args:
        plan: of the run.
        listens: whether other machines may join.
    """
    left_out = []
    if listens and any(name.partition("-")[0] == SAMPLER for name in plan.recording):
        left_out.append("samplers on other machines")
    if plan.recording and plan.groups.count > 1:
        left_out.append("the groups from 1 on")
    return f"--record: {' and '.join(left_out)} are not recorded" if left_out else ""


def _command(arguments: argparse.Namespace, plan: Plan) -> tuple[str, ...]:
    """The command line that makes this plan again from any folder, without the options of a single run."""
    words = [f"--env={arguments.env}"]
    if arguments.topology is not None:
        shipped = arguments.topology in shipped_topologies() and not Path(arguments.topology).exists()
        words = [arguments.topology if shipped else plan.topology_file]
    words += [f"--algorithm={arguments.algorithm}"] if arguments.algorithm else []
    words += [f"--without={role}" for role in dict.fromkeys(arguments.without)]
    words += [f"--callback={name}" for name in arguments.callback]
    settings: dict[Key, str] = {}
    for setting in (*arguments.set, f"run.seed={plan.run.seed}"):
        key = split_key(setting.partition("=")[0])
        settings.pop(key, None)  # set last, stands last: a table may come between
        settings[key] = setting
    return (*words, *(f"--set={setting}" for setting in settings.values()))
