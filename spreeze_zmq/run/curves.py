"""Learning curves of runs, read from their journals, and the interquartile mean of several seeds.

As in rliable (Agarwal et al. 2021, arXiv 2108.13264): the mean of the middle half of the runs, with the
percentile interval of a stratified bootstrap. Each setting is a stratum of its own. Resamples of few runs
hardly leave these: of fewer than ``FEWEST`` it is the mean of all, with Student's t.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.journal import RESUMED, is_look, time_of
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.journal_lines import JournalLines

Array = NDArray[np.float64]

#: Horizontal axis of a curve -> its label.
AXES = {
    "wall_s": "wall time (s)",
    "env_steps": "env steps",
    "trained_transitions": "trained transitions",
    "core_s": "core-seconds (CPU time of all processes)",
}
#: The axis of env steps that group 0 alone has sampled, by which a run stops.
OWN_STEPS = "own_env_steps"
#: Values of rliable.
NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95
#: Runs that a bootstrap needs: of three, the percentile interval of 95 % is from the lowest to the highest,
#: and holds the mean three times in four.
FEWEST = 5
#: Points of a joint curve.
NUM_POINTS = 200
#: Statuses between which trained transitions are interpolated.
NUM_COUNTS = 4_000
#: Stands for core-seconds that a status does not have.
UNKNOWN = -1.0


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run, in their order.

    Attributes:
        x: axis of ``AXES``, or ``OWN_STEPS``, -> ``[K]``, never falling: wall time and core-seconds until
            each evaluation, and counts of its policy, with those of the run's further groups. Core-seconds
            are NaN in runs of earlier releases, which did not count them.
        mean_return: ``[K]``.
        is_cut: whether all of them are looks that a limit of time has cut, whose means compare with no other.
        num_left_out: how many such looks are not in it, as others are whole.
    """

    x: dict[str, Array]
    mean_return: Array
    is_cut: bool = False
    num_left_out: int = 0

    def at(self, axis: str, points: Array) -> Array:
        """The return of the last evaluation at or before each point ``[P]``; NaN before the first."""
        last = np.searchsorted(self.x[axis], points, side="right") - 1
        return np.where(last < 0, np.nan, self.mean_return[np.maximum(last, 0)])


@dataclass(frozen=True)
class Joint:
    """Several curves as one, over the range that all of them cover; each field ``[P]``."""

    x: Array
    middle: Array
    low: Array
    high: Array


def read_curve(folder: Path, *, with_cut: bool = True) -> Curve:
    """The looks of a run: fresh episodes of the best policies are left out, as those were chosen, and so are
    looks that a limit of time has cut.

    Args:
        folder: of the run.
        with_cut: with the latter where all looks are such ones.

    Raises:
        InputError: nothing was evaluated, or no evaluation is whole.
    """
    with JournalLines(RunFolder(folder).metrics, ("evaluation", "status", RESUMED)) as lines:
        looks = [*filter(is_look, lines.read("evaluation"))]
        whole = [look for look in looks if not look.get("timed_out")]
        is_cut, num_left_out = with_cut and not whole, len(looks) - len(whole)
        looks = looks if is_cut else whole
        evaluations = list(_numbers(looks, ("t_s", "env_steps", "mean_return")))
        names = ("env_steps", "trained_transitions", "t_s", "core_s", "beyond", "trained_beyond")
        resumed_s = sorted(time_of(each) or 0.0 for each in lines.read(RESUMED))
        statuses = _with_further_groups(lines.read("status", NUM_COUNTS), resumed_s)
        counts = [(0.0,) * len(names), *_numbers(statuses, names)]
    if not looks:
        raise InputError(f"{folder}: nothing was evaluated in this run, so it has no curve")
    if not evaluations:
        raise InputError(f"{folder}: no evaluation in its journal has t_s, env_steps and mean_return")
    wall, steps, returns = np.array(evaluations, np.float64).T
    sampled, trained, at_s, spent_s, beyond, trained_beyond = np.array(counts, np.float64).T
    # A learner that is started again counts on from its last checkpoint.
    steps, sampled, trained = map(np.maximum.accumulate, (steps, sampled, trained))

    def then(count: Array) -> Array:
        """When its policy had these env steps; while none are sampled, as on data alone, when it was
        played.
        """
        found: Array = np.minimum(np.interp(steps, sampled, count), np.interp(wall, at_s, count))
        return found

    x = {"wall_s": wall, "env_steps": steps + then(beyond), OWN_STEPS: steps}
    x["trained_transitions"] = then(trained + trained_beyond)
    x["core_s"] = np.where((spent_s == UNKNOWN).any(), np.nan, np.interp(wall, at_s, spent_s))
    return Curve(x, returns, is_cut, 0 if is_cut else num_left_out)


def _with_further_groups(
    statuses: Iterable[Mapping[str, Any]], resumed_s: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """The statuses with what the groups but 0, whose counts each has, have sampled and trained on.

    These groups begin at 0 in each run of a lineage; a broker that is started again, in earlier releases a
    fuser too, has no row, or one of zeros, until it hears of them.

    Args:
        statuses: the oldest first.
        resumed_s: when a run went on from the one before, in their order.
    """
    highest: dict[tuple[int, str], Array] = {}
    total = np.zeros(2)
    for status in statuses:
        life, rows = bisect_left(resumed_s, time_of(status) or 0.0), status.get("groups")
        for name, row in rows.items() if isinstance(rows, Mapping) else ():
            row = row if isinstance(row, Mapping) and name != "0" else {}
            for counts in _numbers([row], ("env_steps", "trained_transitions")):
                before = highest.get((life, name), np.zeros(2))
                highest[life, name] = np.maximum(before, counts)
                total += highest[life, name] - before
        yield {"core_s": UNKNOWN, **status, "beyond": float(total[0]), "trained_beyond": float(total[1])}


def _numbers(entries: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[tuple[float, ...]]:
    """These fields of each entry in which all of them are numbers."""
    for entry in entries:
        found = [entry.get(name) for name in names]
        numbers = [
            float(value) for value in found if isinstance(value, int | float) and abs(value) <= LARGEST
        ]
        if len(numbers) == len(names):
            yield tuple(numbers)


def join(curves: Sequence[Curve], axis: str, seed: int = 0) -> Joint | None:
    """The ``middle`` of curves with its ``interval`` over the range that all of them cover.

    None if there is no such range, or one of them has no such axis.
    """
    ends = np.array([curve.x[axis][[0, -1]] for curve in curves])
    begin, end = ends[:, 0].max(), ends[:, 1].min()
    if not begin <= end:
        return None
    points = np.unique(np.linspace(begin, end, NUM_POINTS))
    scores = np.array([curve.at(axis, points) for curve in curves])
    return Joint(points, middle(scores), *interval(scores, seed))


def iqm(scores: Array, axis: int = 0) -> Array:
    """The interquartile mean of ``scores`` along ``axis``: without the lowest and highest quarter of runs."""
    from scipy.stats import trim_mean

    trimmed: Array = np.asarray(trim_mean(scores, proportiontocut=0.25, axis=axis))
    return trimmed


def middle(scores: Array) -> Array:
    """``iqm`` over runs ``[R, P]``, of fewer than ``FEWEST`` their mean: ``[P]``."""
    return iqm(scores) if len(scores) >= FEWEST else scores.mean(0)


def interval(scores: Array, seed: int = 0) -> tuple[Array, Array]:
    """The interval of ``middle`` over runs ``[R, P]``: low and high ``[P]``, both the run itself where it is
    one. It is the percentile bootstrap, which resamples whole runs; of fewer than ``FEWEST`` Student's t.
    """
    if len(scores) < FEWEST:
        return _t_interval(scores)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(scores), (NUM_RESAMPLES, len(scores)))
    resampled = iqm(scores[drawn], axis=1)
    low, high = np.percentile(resampled, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)], axis=0)
    return low, high


def _t_interval(scores: Array) -> tuple[Array, Array]:
    from scipy.stats import t

    mean, count = scores.mean(0), len(scores)
    if count == 1:
        return mean, mean
    half = t.ppf((1 + CONFIDENCE) / 2, count - 1) * scores.std(0, ddof=1) / math.sqrt(count)
    return mean - half, mean + half


def improvement(scores: Array, others: Array, seed: int = 0) -> tuple[float, tuple[float, float] | None]:
    """The probability that a run scores more than one of another setting, ties counted half, with its
    percentile bootstrap interval over the runs of both (arXiv 2108.13264, section 4.3).

    Args:
        scores: ``[R]`` of the runs.
        others: ``[S]`` of those of the other setting.
        seed: of the resamples.

    Returns:
        The probability, and the low and high end of its interval; None in their place where either setting
        has fewer than ``FEWEST`` runs.
    """
    wins = (scores[:, None] > others) + 0.5 * (scores[:, None] == others)
    if min(wins.shape) < FEWEST:
        return float(wins.mean()), None
    rng = np.random.default_rng(seed)
    rows, columns = (rng.integers(0, size, (NUM_RESAMPLES, size)) for size in wins.shape)
    resampled = wins[rows[:, :, None], columns[:, None, :]].mean((1, 2))
    low, high = np.percentile(resampled, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(wins.mean()), (float(low), float(high))


def profile(scores: Array, levels: Array) -> Array:
    """The share ``[P]`` of runs ``[R]`` that score more than each level ``[P]``: a performance profile
    (arXiv 2108.13264, section 4.2).
    """
    shares: Array = (scores[:, None] > levels).mean(0)
    return shares
