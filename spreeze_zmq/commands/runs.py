"""``spreeze runs [DIR]``: a table of past and live runs, the newest last."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spreeze_zmq.commands import table
from spreeze_zmq.run.history import PastRun, find_runs
from spreeze_zmq.status import ended_by

HEADINGS = ("run", "env", "algorithm", "seed", "state", "best", "wall", "env steps", "exit reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="runs", help="where runs are (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list, for another program")


def main(arguments: argparse.Namespace) -> int:
    """Print the runs of a folder."""
    place = Path(arguments.folder)
    figures = [figures_of(run, place) for run in find_runs(place)]
    if arguments.json:
        print(json.dumps(figures, indent=1))
    elif figures:
        table.show(HEADINGS, [row(run) for run in figures])
    else:
        print(f"no runs in {place}")
    return 0


def figures_of(run: PastRun, place: Path) -> dict[str, Any]:
    """The figures of one run in the table, as plain data."""
    about = run.plan["run"]
    return {
        "run": str(run.folder.relative_to(place)) if run.folder != place else str(place),
        "env": about.get("env"),
        "algorithm": about.get("algorithm"),
        "seed": about.get("seed"),
        "state": run.state,
        "best_return": run.summary.get("best_return"),
        "wall_s": run.summary.get("wall_s"),
        "env_steps": run.summary.get("env_steps"),
        "exit_reason": run.exit_reason,
    }


def row(figures: dict[str, Any]) -> list[str]:
    """The cells of one run."""
    best, steps = figures["best_return"], figures["env_steps"]
    return [
        str(figures["run"]),
        str(figures["env"]).rpartition(":")[2],
        *(str(figures[name]) for name in ("algorithm", "seed", "state")),
        "" if best is None else f"{best:.1f}",
        duration(figures["wall_s"]),
        "" if steps is None else f"{steps:,}",
        ended_by(figures["exit_reason"], best),
    ]


def duration(seconds: float | None) -> str:
    """``83.4`` as ``1m 23s``; hours and minutes from one hour on; empty for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{seconds:.1f}s"
