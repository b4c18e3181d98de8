"""The types of an environment's spec as plain data, which files and messages of others hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

#: No dimension, number of choices or time limit is larger.
MOST_COUNT = 2**53
#: No finite bound of an action is larger: bounds have single precision.
MOST_BOUND = float(np.finfo(np.float32).max)


def check_spec(data: Mapping[str, Any]) -> None:
    """Check the fields of a spec.

    Raises:
        KeyError: one is missing.
        ValueError: one is of another type.
    """
    for name, fits in _FITS.items():
        if not fits(data[name] if name in _ALWAYS else data.get(name)):
            raise ValueError(f"{name} of the environment is {data.get(name)!r:.60}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_COUNT


def _are_counts(value: Any) -> bool:
    return value is None or _are_all(value, _is_count)


def _are_all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(fits, value))


def _are_bounds(value: Any) -> bool:
    known = value is None or isinstance(value, np.ndarray)
    return known or _are_all(value, _is_bound)


def _are_limits(value: Any) -> bool:
    return _are_all(value, lambda each: each is None or _is_bound(each)) and len(value) == 2


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_byte(value.get("max"))


def _is_byte(value: Any) -> bool:
    return value is None or (_is_count(value) and value <= np.iinfo(np.uint8).max)


def _is_bound(value: Any) -> bool:
    return type(value) in (int, float) and not MOST_BOUND < abs(value) < math.inf


#: The fields that no spec is without.
_ALWAYS = frozenset({"id", "kwargs", "obs_shape", "obs_dtype", "action_kind"})
#: Field -> whether a value is one; None stands for a field that is left out.
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "id": _is_text,
    "kwargs": lambda value: isinstance(value, Mapping) and all(map(_is_text, value)),
    "obs_shape": lambda value: _are_all(value, _is_count),
    "obs_dtype": lambda value: value in ("float32", "uint8"),
    "action_kind": lambda value: value in ("box", "discrete", "multi_discrete"),
    "action_shape": _are_counts,
    "action_low": _are_bounds,
    "action_high": _are_bounds,
    "action_sizes": _are_counts,
    "max_episode_steps": lambda value: value is None or _is_count(value),
    "described": lambda value: value is None or isinstance(value, bool),
    "action_start": lambda value: value is None or _are_all(value, lambda each: type(each) is int),
    "obs_parts": lambda value: value is None or _are_all(value, _is_part),
    "obs_max": _is_byte,
    "loose_bounds": lambda value: value is None or _is_text(value),
    "action_limits": lambda value: value is None or _are_all(value, _are_limits),
    "action_mask": lambda value: value is None or isinstance(value, bool),
}
