"""``spreeze compare RUN...``: learning curves of runs, seeds of the same setting joined."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import output
from spreeze_zmq.commands import caveats, picture, table
from spreeze_zmq.commands.drawn_curves import draw
from spreeze_zmq.commands.runs import cut, turned
from spreeze_zmq.commands.scored import episode_steps, rewarded_by
from spreeze_zmq.commands.setting import Setting, setting_of
from spreeze_zmq.run.curves import (
    AXES,
    FEWEST,
    Curve,
    improvement,
    interval,
    join,
    middle,
    read_curve,
)
from spreeze_zmq.run.history import PastRun, ancestors_of, find_runs, run_id
from spreeze_zmq.screen.terminal.numbers import clock, decimal

#: Counts by which one run came further than another.
_FAR = ("env_steps", "trained_transitions")
#: Options in the label of a setting, if they tell it from all others.
MOST_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="a run's folder, or a folder of runs, as of several seeds"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the curves")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write the joint curves: a line a point and axis"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print a line for each setting, and write its curves to the files asked for."""
    _check_installed("scipy", *(["matplotlib"] if arguments.png else []))
    if arguments.png:
        picture.check(arguments.png)
    groups = grouped(evaluated_runs(arguments.runs))
    headings = ("setting", "env", "runs", "last return", "best return", "wall", "CPU time", "env steps")
    table.show(headings, [_row(group) for group in groups], wrapping=0)
    say("returns: interquartile mean over runs, 95 % bootstrap interval; the rest: mean, until the last look")
    if any(1 < len(group.runs) < FEWEST for group in groups):
        say("returns of fewer than five runs: the mean, and Student's t")
    runs = [run for each in groups for run in each.runs]
    unlike = [line for group in groups for line in caveats.unlike(group)]
    more = (
        *improvements(groups),
        *unlike,
        *caveats.releases(groups),
        *cut(runs),
        *cut_looks(groups),
        *turned(runs),
    )
    say("".join(f"{line}\n" for line in more), end="")
    for path, write in ((arguments.csv, write_csv), (arguments.png, draw)):
        if path is not None:
            try:
                with output(path) as file:
                    write(groups, file)
            except OSError as error:
                raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
            say(f"wrote {path}")
    return 0


def evaluated_runs(places: Sequence[str]) -> list[tuple[PastRun, Curve]]:
    """The runs in these folders that were evaluated, each once, with their curves; prints which are left out:
    those without an evaluation, and those whose curve is the beginning of another's.

    Raises:
        InputError: a folder holds no run, or no run was evaluated.
    """
    runs: dict[Path, PastRun] = {}
    for place in map(Path, places):
        if not (in_place := find_runs(place)):
            raise InputError(f"{place}: no run's folder: there is no run.json in it")
        runs |= {run.folder.resolve(): run for run in in_place}
    evaluated = []
    for run in runs.values():
        try:
            evaluated.append((run, read_curve(run.folder)))
        except InputError as error:
            if len(runs) == 1:
                raise
            say(f"left out: {error}", file=sys.stderr)
    if not evaluated:
        raise InputError("none of these runs has an evaluation: there is nothing to compare")
    return _once(evaluated)


def _once(runs: Sequence[tuple[PastRun, Curve]]) -> list[tuple[PastRun, Curve]]:
    """The runs without those that others go on from and, of several of one setting that go on from one run or
    are the same run in order, without all but the one that came furthest: they are no independent seeds.
    Prints which are left out.
    """
    furthest_last = sorted(runs, key=lambda run: [float(run[1].x[by][-1]) for by in _FAR])
    continued = {parent: run.folder for run, _ in furthest_last for parent in ancestors_of(run)}
    kept: dict[tuple[str, str], PastRun] = {}
    for run, _ in furthest_last:
        own = run_id(run.folder)
        if own in continued:
            say(f"left out: {run.folder}: {continued[own]} goes on from it", file=sys.stderr)
            continue
        key = json.dumps(setting_of(run), sort_keys=True), (*ancestors_of(run), own)[0]
        for known, other in [pair for pair in kept.items() if pair[0][0] == key[0]]:
            if known == key:
                why = f"{run.folder} has the same first run"
            elif caveats.is_same_in_order(run, other):
                why = f"it is the same run in order as {run.folder}, of the same seed"
            else:
                continue
            say(f"left out: {other.folder}: {why}", file=sys.stderr)
            del kept[known]
        kept[key] = run
    return [pair for pair in runs if pair[0] in kept.values()]


def grouped(runs: Sequence[tuple[PastRun, Curve]]) -> list[Setting]:
    """Runs grouped by setting, in the order given; a label says what differs from others of the same name."""
    by_setting: dict[str, list[tuple[PastRun, Curve]]] = {}
    for run, curve in runs:
        by_setting.setdefault(json.dumps(setting_of(run), sort_keys=True), []).append((run, curve))
    settings = [json.loads(key) for key in by_setting]
    members = [tuple(zip(*pairs, strict=True)) for pairs in by_setting.values()]
    labels = _labels([group[0] for group, _ in members], settings)
    return [
        Setting(group[0].env, label, group, curves)
        for label, (group, curves) in zip(labels, members, strict=True)
    ]


def improvements(groups: Sequence[Setting]) -> Iterator[str]:
    """A line for each setting of several runs: how probably it beats its task's first in as long episodes;
    and one where their runs are not of one length.
    """
    first: dict[str, dict[int, Setting]] = {}
    for group in (group for group in groups if len(group.runs) > 1):
        of_task, steps = first.setdefault(group.env, {}), episode_steps(group.runs[0].plan)
        if (other := of_task.setdefault(steps, group)) is not group:
            yield f"{group.env}: {_improvement(group, other)}"
            yield from caveats.apart(group, other)
        elif len(of_task) > 1:
            others, other = next(iter(of_task.items()))
            yield (
                f"{group.env}: {group.label} does not compare with {other.label}: its returns are of "
                f"episodes of {steps:,} steps, and those of {others:,}"
            )


def cut_looks(groups: Sequence[Setting]) -> Iterator[str]:
    """A line for each run of which time has cut looks: some, which its curve is without, or all."""
    for group in groups:
        for run, curve in zip(group.runs, group.curves, strict=True):
            if curve.is_cut:
                yield f"{run.folder}: time has cut every look of it: its returns compare with no other"
            elif number := curve.num_left_out:
                whole = len(curve.mean_return)
                yield f"{run.folder}: {number:,} of {number + whole:,} looks are left out: time has cut them"


def _improvement(group: Setting, other: Setting) -> str:
    share, ends = improvement(group.best, other.best)
    here, there = (rewarded_by(each.runs[0].plan) for each in (group, other))
    doubtful = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return (
        f"a run of {group.label} has a higher best return than one of {other.label} with probability "
        f"{share:.2f}"
        + (f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else f"; an interval takes {FEWEST} runs of each")
        + (f"; only if {', '.join(doubtful)} changes no reward" if doubtful else "")
    )


def write_csv(groups: Sequence[Setting], path: Path) -> None:
    """Write one line for each point of each joint curve over each axis; ``middle`` says what it is of."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("env", "setting", "runs", "axis", "x", "return", "middle", "low", "high"))
        for group in groups:
            for axis in AXES:
                if joint := join(group.curves, axis):
                    about = (group.env, group.label, len(group.runs), axis)
                    kind = "iqm" if len(group.runs) >= FEWEST else "mean"
                    points = np.stack((joint.x, joint.middle, joint.low, joint.high), 1)
                    writer.writerows((*about, x, y, kind, *ends) for x, y, *ends in points.tolist())


def _row(group: Setting) -> list[str]:
    last = np.array([[curve.mean_return[-1]] for curve in group.curves])
    wall, spent, steps = (
        float(np.mean([curve.x[axis][-1] for curve in group.curves]))
        for axis in ("wall_s", "core_s", "env_steps")
    )
    cost = [clock(wall), "" if np.isnan(spent) else clock(spent), f"{steps:,.0f}"]
    return [group.label, group.env, str(len(group.runs)), _shown(last), _shown(group.best[:, None]), *cost]


def _shown(scores: Any) -> str:
    shown = decimal(middle(scores).item())
    if len(scores) == 1:
        return shown
    low, high = interval(scores)
    return f"{shown} [{decimal(low.item())}, {decimal(high.item())}]"


def _labels(runs: Sequence[PastRun], settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Name and algorithm of each setting, and the first options that differ among settings of the same two;
    more of them where these would leave two alike.
    """
    names = [f"{run.plan['name']} {run.plan['run']['algorithm']}" for run in runs]
    for name, setting in zip(names, settings, strict=True):
        others = [
            other
            for peer, other in zip(names, settings, strict=True)
            if peer == name and other is not setting
        ]
        keys = dict.fromkeys([*setting, *(key for other in others for key in other)])
        differing = [key for key in keys if any(other.get(key) != setting.get(key) for other in others)]
        shown = [key for key in differing if key in setting][:MOST_SHOWN]
        for key in differing:
            alike = [other for other in others if all(other.get(one) == setting.get(one) for one in shown)]
            shown += [key] * any(other.get(key) != setting.get(key) for other in alike)
        yield f"{name} {', '.join(f'{_shortened(key)}={setting.get(key)}' for key in shown)}".strip()


def _shortened(key: str) -> str:
    return key.removeprefix("algorithm.")


def _check_installed(*names: str) -> None:
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise InputError(f"this needs {needed}, which is not installed: pip install 'spreeze_zmq[compare]'")
