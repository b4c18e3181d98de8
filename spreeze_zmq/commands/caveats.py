"""Whether the returns of runs compare: how far each came, with which code, and which of them are one run."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from spreeze_zmq.base.provenance import PACKAGES
from spreeze_zmq.commands.setting import Setting
from spreeze_zmq.plan.releases import MOST
from spreeze_zmq.plan.roles import LEARNERS
from spreeze_zmq.run.curves import Array
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import PastRun

#: Axes of the limits of ``run.stop`` -> their units: runs that agree in one of them are of one length.
_LIMITS = {"env_steps": "env steps", "trained_transitions": "trained transitions", "wall_s": "s"}
#: The least share of the longest run that still is its length.
_AS_LONG = 0.9
_READ_BYTES = 1 << 20


def unlike(group: Setting) -> Iterator[str]:
    """A line where runs of a setting are not of one length, and one where some have not come to their end."""
    [ends] = _ends(group)
    if axis := _apart(ends):
        low, high = ends[axis].min(), ends[axis].max()
        yield (
            f"{group.label}: its runs are of {low:,.0f} to {high:,.0f} {_LIMITS[axis]}: "
            "their last and best returns are not of one length"
        )
    if states := Counter(run.state for run in group.runs if run.state != "ended"):
        found, count = ", ".join(f"{count} {state}" for state, count in states.items()), len(group.runs)
        yield f"{group.label}: {found}, of {count} run{'s' * (count > 1)}: these returns are those so far"


def apart(group: Setting, other: Setting) -> Iterator[str]:
    """A line where the runs of two settings are, on average, not of one length."""
    ends = _ends(group, other)
    means = {axis: np.array([each[axis].mean() for each in ends if each[axis].size]) for axis in _LIMITS}
    if axis := _apart(means):
        lengths = [f"{mean:,.0f}" for mean in means[axis]]
        yield (
            f"{group.env}: runs of {group.label} are of {lengths[0]} {_LIMITS[axis]}, those of {other.label} "
            f"of {lengths[1]}: their returns are not of one length"
        )


def _ends(*groups: Setting) -> list[dict[str, Array]]:
    """Where the runs of each setting end, by axis of ``_LIMITS``: ``[R]``. Where all are to stop at the same
    return it is without those that have reached it: a run that learns faster ends sooner.
    """
    goals = {str(run.plan["run"]["stop"].get("return")) for group in groups for run in group.runs}
    found = []
    for group in groups:
        counts = [len(goals) > 1 or not run.exit_reason.startswith("return ") for run in group.runs]
        curves = [*compress(group.curves, counts)]
        found.append({axis: np.array([curve.x[axis][-1] for curve in curves]) for axis in _LIMITS})
    return found


def _apart(ends: Mapping[str, Array]) -> str:
    """The first axis that counted anything, where ends ``[R]`` agree on none of them; else empty."""
    counted = [axis for axis in _LIMITS if ends[axis].size and ends[axis].max() > 0]
    alike = any(ends[axis].min() >= _AS_LONG * ends[axis].max() for axis in counted)
    return "" if alike else next(iter(counted), "")


def releases(groups: Sequence[Setting]) -> Iterator[str]:
    """A line for each package of which the runs of a task were begun with several releases."""
    for env in dict.fromkeys(group.env for group in groups):
        own = [group for group in groups if group.env == env]
        for package in ("spreeze_zmq", *PACKAGES):
            users = defaultdict[str, Counter[str]](Counter)
            for group in own:
                for run in group.runs:
                    stated = run.plan.get("packages")
                    if isinstance(stated, Mapping) and package in stated:
                        users[str(stated[package])[:MOST]][group.label] += 1
            if len(users) > 1:
                of_each = (
                    f"{release} ({', '.join(f'{count} of {label}' for label, count in labels.items())})"
                    for release, labels in users.items()
                )
                yield f"{env}: runs of several releases of {package}: {'; '.join(of_each)}"


def is_same_in_order(run: PastRun, other: PastRun) -> bool:
    """Whether two runs of one setting are one, of which one may have ended sooner: in order the seed decides
    all, as far as their machines compute alike. So it is where both have recorded the same losses.
    """
    plans = run.plan, other.plan
    if not all(plan["balance"].get("in_order") is True for plan in plans):
        return False
    if plans[0]["run"].get("seed") != plans[1]["run"].get("seed"):
        return False
    pairs = [tuple(RunFolder(each.folder).losses(role) for each in (run, other)) for role in LEARNERS]
    pairs = [pair for pair in pairs if any(path.exists() for path in pair)]
    with contextlib.suppress(OSError):
        return bool(pairs) and all(_begin_alike(*pair) for pair in pairs)
    return False


def _begin_alike(one: Path, other: Path) -> bool:
    """Whether one of two files, neither of them empty, is the beginning of the other, or the same.

    Raises:
        OSError: one cannot be read.
    """
    if not (one.is_file() and other.is_file()):
        return False
    with one.open("rb") as here, other.open("rb") as there:
        first = True
        while True:
            blocks = here.read(_READ_BYTES), there.read(_READ_BYTES)
            size = min(map(len, blocks))
            if not size:
                return not first
            if blocks[0][:size] != blocks[1][:size]:
                return False
            first = False
