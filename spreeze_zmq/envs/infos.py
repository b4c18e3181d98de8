"""What goes into and out of a batch, as in ``gymnasium.vector``: an info is arrays ``[N, ...]`` by name, with
their masks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs.failures import printable

#: Observations ``[N, *obs]``, rewards, terminated and truncated ``[N]``, info.
Step = tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
#: Observations and info of a reset.
Begun = tuple[NDArray[Any], dict[str, Any]]
#: A seed for each environment; None continues a random state.
Seeds = Sequence[int | None]
#: Of a reset, passed to each environment.
Options = dict[str, Any] | None

#: Names in a step's info that belong to the batch; an environment's own of these are in ``final_info`` alone.
_OF_BATCH = frozenset(
    ("final_obs", "_final_obs", "final_info", "_final_info", "episode", "_episode", "failed", "env_id")
)
#: Most numbers of one environment's info that are used, the longest name of one, and the deepest Dict.
MAX_SCALARS, MAX_NAME, MAX_DEPTH = 64, 200, 8
_NUMBERS = (bool, int, float, np.number, np.bool_)


def stacked(rows: Mapping[int, Mapping[Any, Any]], num_envs: int, depth: int = 0) -> dict[Any, Any]:
    """The info of a batch from those of some of its environments, whatever they hold.

    A name is an array ``[N, ...]`` where all of its values are numbers, or arrays of one shape and dtype; a
    dict where all are dicts; else an array of objects. The mask ``_name`` ``[N]`` has its environments.
    """
    values: dict[Any, dict[int, Any]] = defaultdict(dict)
    for row, info in rows.items():
        for name, value in info.items():
            values[name][row] = value
    info, masks = {}, {}
    for name, given in values.items():
        if depth < MAX_DEPTH and all(isinstance(value, dict) for value in given.values()):
            info[name] = stacked(given, num_envs, depth + 1)
        else:
            info[name] = _array(given, num_envs)
        masks[f"_{name}"] = mask = np.zeros(num_envs, np.bool_)
        mask[list(given)] = True
    return {**info, **masks}


def _array(given: Mapping[int, Any], num_envs: int) -> NDArray[Any]:
    """``[N, ...]``: the values of some environments, zeros or None in the other rows."""
    forms = {_form(value) for value in given.values()}
    form: Any = forms.pop() if len(forms) == 1 else None
    if form is None and all(isinstance(value, _NUMBERS) for value in given.values()):
        form = (), np.dtype(np.float64)
    if form is not None:
        array = np.zeros((num_envs, *form[0]), form[1])
        try:
            for row, value in given.items():
                array[row] = value
            return array
        except OverflowError:  # an integer of more than 64 bits
            pass
    array = np.full(num_envs, None, np.object_)
    for row, value in given.items():
        array[row] = value
    return array


def _form(value: Any) -> tuple[tuple[int, ...], Any] | None:
    """Shape and dtype of a number or array; None for anything else."""
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value.shape, value.dtype
    return ((), np.dtype(type(value))) if isinstance(value, _NUMBERS) else None


def select(info: Mapping[Any, Any], mask: NDArray[np.bool_]) -> dict[Any, Any]:
    """A copy of ``info`` with zeros in the rows outside ``mask`` ``[N]``."""
    chosen: dict[Any, Any] = {}
    for key, value in info.items():
        if isinstance(value, dict):
            chosen[key] = select(value, mask)
        else:
            chosen[key] = np.zeros_like(value)
            chosen[key][mask] = value[mask]
    return chosen


def overlay(old: dict[Any, Any], new: dict[Any, Any], mask: NDArray[np.bool_]) -> dict[Any, Any]:
    """The info ``old`` with the rows of ``mask`` ``[N]`` replaced by those of ``new``."""
    info = select(old, ~mask) if not mask.all() else {}
    for key, value in new.items():
        if key not in info:
            info[key] = value
            continue
        kept = info[key]
        if isinstance(value, dict) and isinstance(kept, dict):
            info[key] = overlay(kept, value, mask)
        elif not isinstance(value, dict) and _form(kept) == _form(value):
            kept[mask] = value[mask]
        else:
            rows = np.arange(len(mask)).tolist()
            info[key] = _array({row: of_row(value if mask[row] else kept, row) for row in rows}, len(mask))
    return info


def of_row(values: Any, row: int) -> Any:
    """What one environment has in a batch's info, or in one name of it."""
    if not isinstance(values, dict):
        return values[row]
    return {name: of_row(value, row) for name, value in values.items()}


def without_reserved(info: dict[Any, Any]) -> dict[Any, Any]:
    """The info of environments without names that the batch's own info has."""
    if _OF_BATCH.isdisjoint(info):
        return info
    return {name: value for name, value in info.items() if name not in _OF_BATCH}


def scalars(info: Mapping[Any, Any], row: int) -> dict[str, float]:
    """The finite numbers and flags of one environment in a batch's info, by name, also those in arrays of
    one; ``MAX_SCALARS`` at most.
    """
    numbers: dict[str, float] = {}
    for name, values in info.items():
        if not isinstance(name, str) or name.startswith("_") or isinstance(values, Mapping):
            continue
        array = np.asarray(values)
        mask = info.get(f"_{name}")
        if array.ndim == 0 or (mask is not None and not mask[row]):
            continue
        value = array[row]
        number = _finite(value.flat[0] if isinstance(value, np.ndarray) and value.size == 1 else value)
        if number is not None and len(numbers) < MAX_SCALARS:
            numbers[printable(name[:MAX_NAME])] = number
    return numbers


def _finite(value: Any) -> float | None:
    """A number or flag as a float; None if it is neither, or not finite."""
    if not isinstance(value, _NUMBERS) or isinstance(value, np.complexfloating):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
