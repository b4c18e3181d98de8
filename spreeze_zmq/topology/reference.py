"""Every key that a topology may have, from the tables, component files and dataclasses that check it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.plan.roles import CHANNELS, ROLES
from spreeze_zmq.schema import Option, options_of
from spreeze_zmq.topology.component_file import read_component_file
from spreeze_zmq.topology.mistakes import Mistakes
from spreeze_zmq.topology.options import BALANCE, CHANNEL, RUN, STOP, component_options
from spreeze_zmq.topology.source import shipped_folder


@dataclass(frozen=True)
class Table:
    """One table of a topology.

    Attributes:
        name: as in ``[name]``.
        options: its keys.
        algorithm: the algorithm that these keys belong to; empty where they are every run's.
    """

    name: str
    options: tuple[Option, ...]
    algorithm: str = ""


def reference(named: Iterable[str] | None = None) -> list[Table]:
    """All tables, with the options of these algorithms; by default of the shipped ones.

    Raises:
        InputError: there is no algorithm of that name.
    """
    plain = tuple(option for option in RUN if not option.options)
    return [
        Table("run", plain),
        Table("run.stop", STOP),
        *(algorithm_table(name) for name in (algorithms.names() if named is None else named)),
        Table("balance", BALANCE),
        *(Table(f"components.{role}", component_options(role) + _own_options(role)) for role in ROLES),
        *(Table(f"channels.{name}", CHANNEL) for name in CHANNELS),
    ]


def algorithm_table(name: str) -> Table:
    """The table of one algorithm. Raises InputError where there is none of that name."""
    return Table("algorithm", options_of(algorithms.get(name).Options), name)


def entries(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """The keys of tables as plain data, one entry a key; JSON-able."""
    listed = []
    for table in tables:
        for option in table.options:
            fields = {item.name: getattr(option, item.name) for item in dataclasses.fields(option)}
            del fields["options"]
            key = f"{table.name}.{fields.pop('name')}"
            listed.append({"key": key, "algorithm": table.algorithm, **fields, "accepts": option.expected})
    return listed


def _own_options(role: str) -> tuple[Option, ...]:
    """The options of the shipped component of a role."""
    file = read_component_file(shipped_folder("components") / role, Mistakes())
    return file.options if file else ()
