"""Converts dataclasses to plain JSON values and back, by their annotations: a plan, a run's record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.plan.parts import GroupsPlan

#: The commonest types, which are plain already.
_PLAIN = frozenset((float, int, str, bool, type(None)))
#: Fields that were added to this format, which older files lack, and the functions that make their values.
_ADDED: dict[str, Callable[[], Any]] = {
    "recording": dict,
    "curve": bool,
    "remote": str,
    "back": str,
    "left_to_node": tuple,
    "replaced": tuple,
    "keys": str,
    "command": tuple,
    "ancestors": tuple,
    "placement": dict,
    "tried": dict,
    "timing": dict,
    "groups": GroupsPlan,
    "movable": dict,
    "rows_each": lambda: 1,
    "data": dict,
    "launcher": int,
    "began_s": float,
    "of_samplers": int,
    "packages": dict,
    "own_code": dict,
    "num_episodes": int,
}


def to_plain(value: Any) -> Any:
    """Dataclasses as JSON objects, recursively. Fields with ``row=False`` in their metadata are left out, the
    keys of those with ``spread`` stand in their place.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, EnvironmentSpec):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        table: dict[str, Any] = {}
        for name, key in _keys(type(value)):
            plain = to_plain(getattr(value, name))
            table |= {key: plain} if key else plain
        return table
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, value: Any, place: str) -> Any:
    """A value of the annotated type ``kind`` from its JSON, recursively; messages name the ``place``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if kind is EnvironmentSpec:
        try:
            return EnvironmentSpec.from_dict(_expect(dict, value, place))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{place}: not as envs.EnvironmentSpec describes it: {error!r}") from None
    if is_dataclass(kind):
        return _dataclass_of(kind, value, place)
    if origin is UnionType:
        return None if value is None else from_plain(arguments[0], value, place)
    if origin in (tuple, list):
        return origin(from_plain(arguments[0], item, place) for item in _expect(list, value, place))
    if origin is dict:
        items = _expect(dict, value, place).items()
        return {name: from_plain(arguments[1], item, f"{place}: {name}") for name, item in items}
    if kind is float and type(value) is int:
        return float(value)
    return _expect(kind, value, place)


def _dataclass_of(kind: Any, value: Any, place: str) -> Any:
    table, hints = _expect(dict, value, place), get_type_hints(kind)
    arguments = {}
    for item in fields(kind):
        key = _key(item)
        if key in table:
            arguments[item.name] = from_plain(hints[item.name], table[key], f"{place}: {key}")
        elif item.name in _ADDED:
            arguments[item.name] = _ADDED[item.name]()
        else:
            raise InputError(f"{place}: {key} is missing")
    return kind(**arguments)


def _key(item: Field[Any]) -> str:
    """The name of a dataclass field in files."""
    option = item.metadata.get("option")
    return str(item.metadata.get("key") or (option and option.name) or item.name)


@cache
def _keys(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Name and key of each field of a dataclass that is part of its JSON; no key where it is spread."""
    rows = [item for item in fields(kind) if item.metadata.get("row", True)]
    return tuple((item.name, "" if "spread" in item.metadata else _key(item)) for item in rows)


def _expect(kind: Any, value: Any, place: str) -> Any:
    if type(value) is not kind:
        raise InputError(f"{place}: {kind.__name__} was expected, got {value!r}")
    return value
