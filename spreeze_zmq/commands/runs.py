"""``spreeze runs [DIR]``: a table of past and live runs, the newest last; chosen ones can be deleted."""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.broker.notes import turned_in
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import add_json_list
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import PastRun, find_runs, parent_of, read_run
from spreeze_zmq.screen.terminal.numbers import clock, decimal, memory
from spreeze_zmq.screen.terminal.words import cut_by_time, ended_by

HEADINGS = ("run", "began", "env", "algorithm", "seed", "state", "best", "wall", "env steps", "exit reason")
#: Seconds of the units of an age.
UNITS = {"min": 60.0, "h": 3600.0, "d": 86_400.0}
#: A run whose figures are older is over; a live one writes them each second.
STILL_S = 60.0
#: How old the knowledge may be, while runs are deleted, of which others have begun: reading all names takes
#: longer than deleting a run.
LOOK_AGAIN_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, what chooses runs of it, and what becomes of them."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="runs", help="where runs are (default: %(default)s)"
    )
    parser.add_argument("--env", metavar="NAME", help="only runs of this environment; * stands for anything")
    parser.add_argument("--algorithm", metavar="NAME", help="only runs of this algorithm")
    parser.add_argument("--state", choices=("running", "ended", "crashed"), help="only runs in this state")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        default=0.0,
        help="only runs that wrote nothing since, however long ago they began: 12h, 7d",
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete the folders of these runs, after a question"
    )
    parser.add_argument("--yes", action="store_true", help="with --delete: ask nothing")
    add_json_list(parser)


def _age(text: str) -> float:
    """Seconds of ``30min``, ``12h`` or ``7d``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(min|h|d)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected an age such as 30min, 12h or 7d, got {text!r}")
    return float(found[1]) * UNITS[found[2]]


def main(arguments: argparse.Namespace) -> int:
    """Print the runs of a folder, or delete them.

    Raises:
        InputError: there is no such folder; runs shall be deleted, but not which, or nobody can be asked.
    """
    place = Path(arguments.folder)
    runs = find_runs(place)
    chosen = [run for run in runs if _is_chosen(run, arguments)]
    if arguments.delete:
        _delete([run for run in chosen if run.state != "running"], runs, arguments)
        return 0
    figures = [figures_of(run, place, parent_of(run, runs)) for run in chosen]
    if arguments.json:
        say(json.dumps(figures, indent=1))
    elif figures:
        resumed = any(run["parent"] for run in figures)
        headings = (*HEADINGS, "goes on from") if resumed else HEADINGS
        table.show(headings, [row(run)[: len(headings)] for run in figures])
    else:
        say(f"no such runs in {place}" if runs else f"no runs in {place}")
    return 0


def _is_chosen(run: PastRun, arguments: argparse.Namespace) -> bool:
    """Whether a run is one of those that the command line asks for."""
    about, env = run.plan["run"], arguments.env
    names = {name for each in (about["env"], run.env) for name in (each, each.rpartition(":")[2])}
    return (
        (env is None or any(fnmatch.fnmatchcase(name, env) for name in names))
        and arguments.algorithm in (None, about.get("algorithm"))
        and arguments.state in (None, run.state)
        and _written_s(run) <= time.time() - arguments.older_than
    )


def _delete(runs: list[PastRun], there: list[PastRun], arguments: argparse.Namespace) -> None:
    """Delete runs, which are over, once the user has agreed; not those with a live one below, nor those of
    whose checkpoints another run that is there has need.
    """
    if not (arguments.env or arguments.algorithm or arguments.state or arguments.older_than):
        raise InputError("--delete: say which runs, by --env, --algorithm, --state or --older-than")
    inside, left = {}, {run.folder: run for run in there}
    for run in reversed(runs):  # what goes on from another one goes before that
        del left[run.folder]
        if why := _why_it_stays(run, left.values()):
            say(f"{run.folder} stays: {why}")
            left[run.folder] = run
        else:
            inside[run.folder] = [_size(path) for path in run.folder.rglob("*")]
    sizes = {folder: sum(each) for folder, each in inside.items()}
    if not sizes:
        say("nothing to delete: no run that is over fits")
        return
    say("\n".join(map(str, reversed(sizes))))
    them = _in_words(sizes.values())
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise InputError(f"--delete: {them} would be gone for good, and nobody can be asked: add --yes")
        say(f"delete {them} for good? Type yes:")
        if sys.stdin.readline().strip() != "yes":
            say("nothing is deleted")
            return
    gone: list[int] = []
    try:
        for folder in _going(list(sizes), {run.folder: run for run in there}, Path(arguments.folder)):
            _remove(folder, len(inside[folder]))
            gone.append(sizes[folder])
    finally:
        say(f"{_in_words(gone)} deleted" if gone else "nothing is deleted")


def _going(folders: list[Path], left: dict[Path, PastRun], place: Path) -> Iterator[Path]:
    """The runs that are to be deleted, in this order, each looked at again just before: since they were found
    one of them may have been written to, or another run have begun that goes on from it, for which all
    folders are looked at each ``LOOK_AGAIN_S``.

    Args:
        folders: of these runs.
        left: all that were found in ``place``, by folder.
        place: where they are.
    """
    looked_s = -math.inf
    for folder in folders:
        before = left.pop(folder)
        try:
            run = read_run(folder)
        except InputError:
            say(f"{folder} is no run's folder any more")
            continue
        if time.monotonic() - looked_s > LOOK_AGAIN_S:
            left |= {new.folder: new for new in find_runs(place, but=(folder, *left))}
            looked_s = time.monotonic()
        if why := _why_it_stays(run, left.values()):
            say(f"{folder} stays: {why}")
            left[folder] = before
        else:
            yield folder


def _why_it_stays(run: PastRun, others: Iterable[PastRun]) -> str:
    """Why a run is not deleted, in words; empty where it may be.

    Args:
        run: the run.
        others: those that stay, of which none may go on from a checkpoint of it as long as it has no complete
            one of its own.
    """
    if run.state == "running":
        return "it is live"
    if _may_live(run):
        return f"it was written to less than {STILL_S:.0f} s ago; does it run elsewhere?"
    below = (other for other in find_runs(run.folder) if other.folder != run.folder)
    if any(other.state == "running" or _may_live(other) for other in below):
        return "a run below it is live"
    here = str(run.folder.resolve())
    for other in others:  # of which there may be thousands: a path is taken apart where it begins alike
        given = str(other.plan["run"].get("resume_from"))
        is_from = given.startswith(here) and str(Path(given).parent.parent) == here
        if is_from and latest(RunFolder(other.folder).checkpoints) is None:
            return f"{other.folder} goes on from its checkpoint, and has none of its own yet"
    return ""


def _may_live(run: PastRun) -> bool:
    """Whether a run may be a live one of another machine: not every file system knows the lock of a run, and
    one that has just begun has no figures yet.
    """
    return not run.exit_reason and time.time() - _written_s(run) < STILL_S


def _written_s(run: PastRun) -> float:
    """When a run wrote last, as far as is known, in seconds since 1970."""
    return max(run.began_s, RunFolder(run.folder).written_s)


def _remove(folder: Path, num_inside: int) -> None:
    """Delete a folder in which there were so many files and folders. Raises InputError, which says whether
    any of it is gone, and where it went no further.
    """

    def refuse(_: object, path: str, about: Any) -> None:
        error = about[1] if isinstance(about, tuple) else about
        why = error.strerror or " ".join(map(str, error.args))  # of shutil's own there is no number
        where = "" if Path(path) == folder else f" ({Path(path).relative_to(folder)})"
        what = "stays" if len(list(folder.rglob("*"))) >= num_inside else "is deleted in part"
        raise InputError(f"{folder} {what}: {why}{where}") from None

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=refuse)
    else:
        shutil.rmtree(folder, onerror=refuse)


def _in_words(sizes: Collection[int]) -> str:
    """How many runs, and how many bytes they have."""
    return f"{len(sizes)} run{'s' if len(sizes) > 1 else ''} ({memory(sum(sizes))})"


def _size(path: Path) -> int:
    """Bytes of a file; 0 of anything else."""
    return path.lstat().st_size if path.is_file() else 0


def figures_of(run: PastRun, place: Path, parent: Path | None) -> dict[str, Any]:
    """The figures of one run in the table, as plain data; those of a resumed one count from its first run."""
    about = run.plan["run"]
    return {
        "run": _shown(run.folder, place),
        "began": datetime.fromtimestamp(run.began_s).astimezone().isoformat(timespec="seconds"),
        "env": run.env,
        "algorithm": about.get("algorithm"),
        "seed": about.get("seed"),
        "state": run.state,
        "best_return": run.summary.get("best_return"),
        "best_cut": cut_by_time(run.summary.get("best")),
        "wall_s": run.summary.get("wall_s"),
        "env_steps": run.summary.get("env_steps"),
        "exit_reason": run.exit_reason,
        "parent": None if parent is None else _shown(parent, place),
    }


def _shown(folder: Path, place: Path) -> str:
    """A run's folder as the table names it: from ``place``, if it is below that."""
    below = folder != place and folder.is_relative_to(place)
    return str(folder.relative_to(place) if below else folder)


def cut(runs: Iterable[PastRun]) -> Iterator[str]:
    """A line for each run whose best return is of episodes that did not last to their end."""
    for run in runs:
        if found := cut_by_time(run.summary.get("best")):
            yield f"{run.folder}: of the episodes of its best return, {found}: it compares with no other"


def turned(runs: Iterable[PastRun]) -> Iterator[str]:
    """A line for each run in which options were set while it trained: its setting is not all that it learned
    by.
    """
    for run in runs:
        if found := turned_in(RunFolder(run.folder).metrics):
            values = ", ".join(f"{name} {value:g}" for name, value in found.items())
            yield f"{run.folder}: set while it trained, beside its setting: {values}"


def row(figures: dict[str, Any]) -> list[str]:
    """The cells of one run."""
    best, steps, wall_s = figures["best_return"], figures["env_steps"], figures["wall_s"]
    return [
        str(figures["run"]),
        f"{figures['began'][:10]} {figures['began'][11:16]}",
        str(figures["env"]).rpartition(":")[2],
        *(str(figures[name]) for name in ("algorithm", "seed", "state")),
        "" if best is None else ", ".join(filter(None, (decimal(best), figures["best_cut"]))),
        "" if wall_s is None else clock(wall_s),
        "" if steps is None else f"{steps:,}",
        ended_by(figures["exit_reason"], best),
        figures["parent"] or "",
    ]
