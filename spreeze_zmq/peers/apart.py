"""Whether the draws of several environments, or of several rollouts, are independent of each other."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.peers.clauses import expect
from spreeze_zmq.wire import Message

#: The chance of finding one noise where there are two, among the environments or among the rollouts.
CHANCE = 1e-7
#: Numbers are compared by which of so many equally likely intervals they are in.
INTERVALS = 16
#: Environments and rollouts that are compared, each with each other.
COMPARED = 64
Floats = NDArray[np.float64]


def expect_apart(found: list[Message], chosen: NDArray[np.int64], chances: Floats | float) -> None:
    """Raise Broken if two environments, or two rollouts, were drawn with the same noise.

    Args:
        found: the rollouts; those of another size than the first are left out.
        chosen: what was drawn, ``[steps, A]``, in the order of the rollouts.
        chances: of each choice, ``[steps, A, n]``, or of all where they are alike.
    """
    sizes = [(int(m.fields["num_steps"]), int(m.fields["num_envs"])) for m in found]
    cells = _cells(chosen, sizes)
    likely = chances if isinstance(chances, float) else _cells(chances, sizes)
    for what, axis in (("environments", 2), ("rollouts", 0)):
        rows = chances if isinstance(likely, float) else _columns(likely, axis)
        pair = shared(_columns(cells, axis), rows)
        expect(pair is None, f"{what} {' and '.join(map(str, pair or ()))} are drawn with the same noise")


def shared(chosen: NDArray[np.int64], chances: Floats | float) -> tuple[int, int] | None:
    """Two columns that were drawn with the same noise; None if there are none.

    For each pair a stake is bet on it: in a row in which both columns hold the same choice, of the chance p,
    it becomes 1/2 + 1/2p times what it was, in all others half. On average it does not grow if the second
    draw does not depend on the first, so that it ever reaches x with a chance of at most 1/x.

    Args:
        chosen: ``[rows, columns]``.
        chances: of each choice, ``[rows, columns, n]``, or of all where they are alike.
    """
    pairs = [*combinations(range(chosen.shape[1]), 2)]
    for one, other in pairs:
        of_one, same = chosen[:, one], chosen[:, one] == chosen[:, other]
        due = chances
        if not isinstance(due, float):
            due = np.take_along_axis(due[:, other], of_one[:, None], 1)[:, 0]
        won = np.divide(same, due, out=np.zeros(len(same)), where=same & (np.asarray(due) > 0))
        if np.log(0.5 + 0.5 * won).sum() > math.log(len(pairs) / CHANCE):
            return one, other
    return None


def intervals(shares: Floats) -> NDArray[np.int64]:
    """The interval of each number by the share of the distribution that is below it, 0 to 1."""
    return np.clip(np.floor(shares * INTERVALS), 0, INTERVALS - 1).astype(np.int64)


def normal_shares(noise: Floats) -> Floats:
    """The share of the standard normal distribution that is below each number."""
    below = [0.5 * math.erfc(-number / math.sqrt(2)) for number in noise.ravel().tolist()]
    return np.array(below).reshape(noise.shape)


def _cells(rows: NDArray[Any], sizes: list[tuple[int, int]]) -> NDArray[Any]:
    """``[steps, ...]`` of several rollouts as ``[rollouts, T, N, ...]``, of the first ones."""
    parts = np.split(rows, np.cumsum([steps * envs for steps, envs in sizes])[:-1])
    alike = [part for part, size in zip(parts, sizes, strict=True) if size == sizes[0]][:COMPARED]
    return np.stack([part.reshape(*sizes[0], *part.shape[1:])[:, :COMPARED] for part in alike])


def _columns(cells: NDArray[Any], axis: int) -> NDArray[Any]:
    """``[rollouts, T, N, A, ...]`` as ``[rows, columns, ...]``, with a column for each place of an axis."""
    moved = np.moveaxis(cells, axis, 3)
    return moved.reshape(-1, moved.shape[3], *moved.shape[4:])
