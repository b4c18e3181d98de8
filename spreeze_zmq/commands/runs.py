"""``spreeze runs [DIR]``: a table of past and live runs, the newest last."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import add_json_list
from spreeze_zmq.run.history import PastRun, find_runs, parent_of
from spreeze_zmq.screen.terminal.words import clock, ended_by

HEADINGS = ("run", "env", "algorithm", "seed", "state", "best", "wall", "env steps", "exit reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="runs", help="where runs are (default: %(default)s)"
    )
    add_json_list(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the runs of a folder."""
    place = Path(arguments.folder)
    runs = find_runs(place)
    figures = [figures_of(run, place, parent_of(run, runs)) for run in runs]
    if arguments.json:
        say(json.dumps(figures, indent=1))
    elif figures:
        resumed = any(run["parent"] for run in figures)
        headings = (*HEADINGS, "goes on from") if resumed else HEADINGS
        table.show(headings, [row(run)[: len(headings)] for run in figures])
    else:
        say(f"no runs in {place}")
    return 0


def figures_of(run: PastRun, place: Path, parent: Path | None) -> dict[str, Any]:
    """The figures of one run in the table, as plain data; those of a resumed one count from its first run."""
    about = run.plan["run"]
    return {
        "run": _shown(run.folder, place),
        "env": about.get("env"),
        "algorithm": about.get("algorithm"),
        "seed": about.get("seed"),
        "state": run.state,
        "best_return": run.summary.get("best_return"),
        "wall_s": run.summary.get("wall_s"),
        "env_steps": run.summary.get("env_steps"),
        "exit_reason": run.exit_reason,
        "parent": None if parent is None else _shown(parent, place),
    }


def _shown(folder: Path, place: Path) -> str:
    """A run's folder as the table names it: from ``place``, if it is below that."""
    below = folder != place and folder.is_relative_to(place)
    return str(folder.relative_to(place) if below else folder)


def row(figures: dict[str, Any]) -> list[str]:
    """The cells of one run."""
    best, steps, wall_s = figures["best_return"], figures["env_steps"], figures["wall_s"]
    return [
        str(figures["run"]),
        str(figures["env"]).rpartition(":")[2],
        *(str(figures[name]) for name in ("algorithm", "seed", "state")),
        "" if best is None else f"{best:.1f}",
        "" if wall_s is None else clock(wall_s),
        "" if steps is None else f"{steps:,}",
        ended_by(figures["exit_reason"], best),
        figures["parent"] or "",
    ]
