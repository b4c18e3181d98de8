"""The rows of a run's record: what the broker counts is what it publishes, writes and restores.

A row is a dataclass, and its fields are the declaration: their names and order are those of the status, of
summary.json and of the journal, by ``plan.form.to_plain``. :func:`inner` marks a field that only the broker
needs. A part of the record marks with :func:`kept` what broker.json hands on to a restarted broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar, get_type_hints

from spreeze_zmq.plan.form import from_plain, to_plain

Row = TypeVar("Row")
#: The metadata of a field whose own keys stand in its place.
SPREAD = {"spread": True}


def inner(default: Callable[[], Any]) -> Any:
    """A field that is no part of its row."""
    return field(default_factory=default, metadata={"row": False})


def kept(default: Callable[[], Any], key: str = "", *, row: bool = True) -> Any:
    """A field that a restarted broker restores; ``key``: in broker.json, by default its name. Without
    ``row`` it is no part of its row.
    """
    return field(default_factory=default, metadata={"kept": key, "row": row})


def part(default: Callable[[], Any]) -> Any:
    """A field of the record that is an object with kept fields of its own."""
    return field(default_factory=default, metadata={"part": True})


def row_of(kind: type[Row], values: Mapping[str, Any]) -> Row:
    """A row from those of the values that have the names of its fields."""
    return kind(**{item.name: values[item.name] for item in fields(kind) if item.name in values})  # type: ignore[arg-type]


def state_of(record: Any) -> dict[str, Any]:
    """The JSON-able state of a record: its kept fields and those of its parts, by their keys."""
    return {key: to_plain(getattr(owner, item.name)) for owner, item, key in _kept(record)}


def restore(record: Any, state: Mapping[str, Any]) -> None:
    """Inverse of :func:`state_of`; what an older release did not keep yet stays as it is.

    Raises:
        InputError: a value is not of its field's type.
    """
    for owner, item, key in _kept(record):
        if key in state:
            kind = get_type_hints(type(owner))[item.name]
            setattr(owner, item.name, from_plain(kind, state[key], f"broker.json: {key}"))


def _kept(record: Any) -> Iterator[tuple[Any, Field[Any], str]]:
    for item in fields(record):
        if "kept" in item.metadata:
            yield record, item, item.metadata["kept"] or item.name
        elif "part" in item.metadata:
            yield from _kept(getattr(record, item.name))
