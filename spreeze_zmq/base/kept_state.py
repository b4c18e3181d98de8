"""Python objects as plain values: numbers, texts, arrays, lists and maps, from which equal ones are made.

Nothing is executed: what is read back are values, never classes. An object that is found twice stays one.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from spreeze_zmq.base.errors import StateNotKept

#: Integers beyond this travel as text.
_LARGEST_INT = 2**63
#: Bit generators of NumPy that are made again by their name.
_BITS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
#: Kinds of values that are kept as they are; integers that are not too large, too.
PLAIN = (bool, str, float, type(None))
_LISTS: Mapping[str, type[Any]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_PATHS = {kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, type(Path()))}


class Keeper:
    """Makes plain values of objects; one keeper for all that may refer to each other.

    Args:
        other: keeps an object of another class, or returns None where it does not know it.
        views: whether arrays may share memory, as in the place where they are made again.
    """

    def __init__(
        self, other: Callable[[Any], dict[str, Any] | None] = lambda value: None, *, views: bool = False
    ) -> None:
        self._other, self._views = other, views
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []  # so that no two have one id
        self._memory: dict[int, list[Any]] = {}  # id of an array's memory -> the arrays in it

    def keep(self, value: Any, place: str) -> Any:
        """The plain value of an object; ``place`` names it in errors.

        Raises:
            StateNotKept: it is, or holds, something else.
        """
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is int:
            return value if abs(value) < _LARGEST_INT else {"int": str(value)}
        if isinstance(value, np.generic):
            return {"number": np.array(value)}
        if (number := self._numbers.get(id(value))) is not None:
            return {"same": number}
        number = self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        return {**self._object(value, place, number), "no": number}

    def _object(self, value: Any, place: str, number: int) -> dict[str, Any]:
        kind = type(value)
        if kind is np.ndarray:
            return {"array": self._array(value, place)}
        if kind is deque:
            return {"deque": [self.keep(item, place) for item in value], "most": value.maxlen}
        if kind is dict:
            return {"dict": [[self.keep(key, place), self.keep(item, place)] for key, item in value.items()]}
        for name, listed in _LISTS.items():
            if kind is listed:
                return {name: [self.keep(item, place) for item in value]}
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind.__name__ in _PATHS and kind is _PATHS[kind.__name__]:
            return {"path": [kind.__name__, str(value)]}
        if kind is np.random.Generator and type(value.bit_generator).__name__ in _BITS:
            return {"generator": self.keep(value.bit_generator.state, place)}
        if kind is np.random.RandomState:
            return {"random_state": self.keep(value.get_state(legacy=False), place)}
        if kind is random.Random:
            return {"random": self.keep(value.getstate(), place)}
        if (known := self._other(value)) is not None:
            return known
        raise StateNotKept(f"{place} is a {kind.__module__}.{kind.__qualname__}")

    def _array(self, array: Any, place: str) -> Any:
        if array.dtype.hasobject or array.dtype.names:
            raise StateNotKept(f"{place} is an array of {array.dtype}")
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        others = self._memory.setdefault(id(owner), [])
        if not self._views and any(np.may_share_memory(array, other) for other in others):
            raise StateNotKept(f"{place} is a view of another array")
        others.append(array)
        self._held.append(owner)
        return np.array(array)


def common_arrays(objects: Iterable[Any]) -> frozenset[int]:
    """The ids of the arrays that several attributes of these objects are, or one is and a constant of its
    class or module too.
    """
    listed = list(objects)
    seen = Counter(id(value) for each in listed for value in vars(each).values() if _is_array(value))
    kinds = {kind for each in listed for kind in type(each).__mro__}
    places = [*kinds, *filter(None, (sys.modules.get(kind.__module__) for kind in kinds))]
    constants = {id(value) for place in places for value in vars(place).values() if _is_array(value)}
    return frozenset(number for number, count in seen.items() if count > 1 or number in constants)


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray


class Maker:
    """Makes the objects of one :class:`Keeper` again, in the order in which they were kept.

    Args:
        other: makes what the keeper's ``other`` has kept, into the object that is there at that place.
        common: ids of arrays that are not written to, since others have them too.
    """

    def __init__(
        self,
        other: Callable[[Mapping[str, Any], Any], Any] | None = None,
        common: Collection[int] = (),
    ) -> None:
        self._other, self._common = other, common
        self._made: dict[int, Any] = {}

    def make(self, plain: Any, present: Any = None) -> Any:
        """The object; a generator of the same form that is ``present`` is written to and returned, and so is
        an array that is not common.

        Raises:
            StateNotKept: it is no plain value of a keeper, or ``present`` is of another kind.
        """
        if not isinstance(plain, dict):
            return plain
        try:
            if "same" in plain:
                return self._made[plain["same"]]
            if "int" in plain:
                return int(plain["int"])
            if "number" in plain:
                return plain["number"][()]
            made = self._made[plain["no"]] = self._object(plain, present)
        except StateNotKept:
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise StateNotKept(f"{type(error).__name__}: {error}"[:200]) from error
        return made

    def _object(self, plain: Mapping[str, Any], present: Any) -> Any:
        if "array" in plain:
            saved = plain["array"]
            if id(present) in self._common and not np.array_equal(present, saved):
                present = None
            return put_into(present, saved)
        if "deque" in plain:
            return deque(map(self.make, plain["deque"]), plain["most"])
        if "dict" in plain:
            return {self.make(key): self.make(item) for key, item in plain["dict"]}
        for name, listed in _LISTS.items():
            if name in plain:
                return listed(map(self.make, plain[name]))
        if "range" in plain:
            return range(*plain["range"])
        if "path" in plain:
            name, text = plain["path"]
            return _PATHS[name](text)
        if "generator" in plain:
            state = self.make(plain["generator"])
            there = type(present) is np.random.Generator
            if not there or type(present.bit_generator).__name__ != state["bit_generator"]:
                present = np.random.Generator(_BITS[state["bit_generator"]]())
            present.bit_generator.state = state
            return present
        if "random_state" in plain:
            present = present if type(present) is np.random.RandomState else np.random.RandomState()
            present.set_state(self.make(plain["random_state"]))
            return present
        if "random" in plain:
            present = present if type(present) is random.Random else random.Random()
            present.setstate(self.make(plain["random"]))
            return present
        if self._other is None:
            raise KeyError(next(iter(plain), ""))
        return self._other(plain, present)


def put_into(present: Any, saved: Any) -> Any:
    """The array ``saved``, written into the array that is ``present`` where that has its form."""
    if not isinstance(saved, np.ndarray):
        raise TypeError(f"a {type(saved).__name__} is no array")
    same = type(present) is np.ndarray and present.shape == saved.shape and present.dtype == saved.dtype
    if not same:
        return np.array(saved)
    if present.flags.writeable:
        present[...] = saved
    else:
        present.flags.writeable = True
        present[...] = saved
        present.flags.writeable = False
    return present
