"""``spreeze nodes [RUN]``: the machines that have joined a run: load, processes, link, since when."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.rates import rate
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import add_json_list
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import PastRun, find_runs, read_run
from spreeze_zmq.screen.terminal.numbers import clock, memory

HEADINGS = ("node", "host", "cores busy", "memory", "runs", "env steps/s", "to the head", "from it", "joined")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run's folder (default: the newest running one in ./runs)"
    )
    add_json_list(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the machines of a run, those that are gone last."""
    run = read_run(Path(arguments.run)) if arguments.run else _newest()
    machines = machines_of(run)
    if arguments.json:
        say(json.dumps(machines, indent=1))
    elif machines:
        lost = any(machine["lost_s"] is not None for machine in machines)
        headings = (*HEADINGS, "gone") if lost else HEADINGS
        table.show(headings, [row(machine)[: len(headings)] for machine in machines])
    else:
        say(f"{run.folder}: {_why_none(run)}")
    return 0


def machines_of(run: PastRun) -> list[dict[str, Any]]:
    """The rows of ``machines`` as the journal has them last, with ``node``, ``joined_s``, and ``lost_s`` for
    those that are no part of the run any more, and for all of a run that is over: in seconds of the run's
    clock.
    """
    found: dict[str, dict[str, Any]] = {}
    now_s = 0.0
    for status in read_journal(RunFolder(run.folder).metrics, ("status",)):
        if status.get("inherited"):
            continue
        now_s, rows = status["t_s"], status.get("machines", {})
        for node, about in rows.items():
            joined_s = found.get(node, {}).get("joined_s", now_s)
            found[node] = {"node": node, **about, "joined_s": joined_s, "lost_s": None}
        for node in found.keys() - rows.keys():
            found[node]["lost_s"] = now_s if found[node]["lost_s"] is None else found[node]["lost_s"]
    if run.state != "running":
        for machine in found.values():
            machine["lost_s"] = now_s if machine["lost_s"] is None else machine["lost_s"]
    return sorted(found.values(), key=lambda machine: machine["lost_s"] is not None)


def row(machine: Mapping[str, Any]) -> list[str]:
    """The cells of one machine; what it does, only while it is there."""
    joined_s, lost_s = machine["joined_s"], machine["lost_s"]
    names = [str(machine["node"]), str(machine["host"])]
    if lost_s is not None:
        return [*names, f"of {machine['cores']}", *[""] * 5, clock(joined_s), clock(lost_s)]
    return [
        *names,
        f"{machine['busy']:.1f} of {machine['cores']}",
        memory(machine["memory_bytes"]),
        machine["runs"] or "nothing",
        rate(machine["env_steps_per_s"]),
        f"{memory(machine['sent_bytes_per_s'])}/s",
        f"{memory(machine['received_bytes_per_s'])}/s",
        clock(joined_s),
        "",
    ]


def _newest() -> PastRun:
    """The newest running run of ./runs. Raises InputError."""
    place = Path("runs")
    running = [run for run in find_runs(place) if run.state == "running"] if place.is_dir() else []
    if not running:
        raise InputError(f"no run in ./{place} is running: name a run's folder, as in spreeze nodes RUN")
    return running[-1]


def _why_none(run: PastRun) -> str:
    """Why a run has no machines, and what to do."""
    listens = any(channel.get("remote") for channel in run.plan.get("channels", {}).values())
    if not listens:
        return "no other machine can join it: start a run with spreeze-launch --listen ADDRESS"
    if run.state != "running":
        return "no other machine has joined it"
    return "no other machine has joined it yet: its launcher has printed the line to run there"
