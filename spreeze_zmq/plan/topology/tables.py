"""Reads one table of a file: checks its keys, fills in defaults and collects mistakes with their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.errors import Mistake
from spreeze_zmq.base.schema import Option, Unfit, check, did_you_mean, show, suggestion

#: A key of a topology, one name per level: ``("run", "stop", "minutes")``.
Key = tuple[str, ...]


def dotted(key: Key) -> str:
    """The key as a file writes it; a name that contains a dot is quoted."""
    return ".".join(f'"{name}"' if "." in name or not name else name for name in key)


@dataclass(frozen=True)
class Places:
    """Where each key of a file was written.

    Attributes:
        file: the file's name in messages.
        lines: line number, from 1, of each key and table.
        overridden: keys set on the command line; ``--set`` is their place and the place of all keys below.
    """

    file: str = ""
    lines: Mapping[Key, int] = field(default_factory=dict)
    overridden: frozenset[Key] = frozenset()

    def of(self, key: Key) -> str:
        """``pendulum.toml:4 run.seed``, ``--set run.seed``, or the key alone if it is written nowhere."""
        prefixes = [key[:length] for length in range(len(key), 0, -1)]
        line = next((self.lines[prefix] for prefix in prefixes if prefix in self.lines), None)
        opened = line is None and any(name[: len(key)] == key for name in self.overridden)
        if opened or any(prefix in self.overridden for prefix in prefixes):
            return f"--set {dotted(key)}"
        return dotted(key) if line is None else f"{self.file}:{line} {dotted(key)}"


class Mistakes:
    """The mistakes of one topology, collected so that all are reported at once."""

    def __init__(self, places: Places | None = None):
        self.places = places or Places()
        self.found: list[Mistake] = []

    def add(self, key: Key, problem: str, hint: str = "") -> None:
        self.add_at(self.places.of(key), problem, hint)

    def add_at(self, place: str, problem: str, hint: str = "") -> None:
        """Note a mistake at a file or command-line option; line breaks in the texts become blanks."""
        self.found.append(Mistake(*(" ".join(text.split()) for text in (place, problem, hint))))


def read_table(
    options: Sequence[Option],
    table: Any,
    key: Key,
    mistakes: Mistakes,
    elsewhere: Callable[[str], str] = lambda name: "",
) -> dict[str, Any]:
    """The values of all ``options``; a missing or mistaken one has its default.

    Args:
        options: the keys that the table may have.
        table: the table as written.
        key: its place in the file.
        mistakes: takes unknown keys, unfit values and missing required keys.
        elsewhere: a hint for an unknown key that another table has, else "".
    """
    values = {option.name: deepcopy(option.default) for option in options}
    if not isinstance(table, Mapping):
        mistakes.add(key, f"expected a table, got {show(table)}", f"write [{dotted(key)}] and its keys below")
        return values
    by_name = {option.name: option for option in options}
    for name, value in table.items():
        place = (*key, name)
        option = by_name.get(name)
        if option is None:
            hint = elsewhere(name) or did_you_mean(name, by_name) or suggestion(name, by_name)
            mistakes.add(place, "unknown key", hint)
        elif option.options:
            within = read_table(option.options, value, place, mistakes, elsewhere)
            values[name] = {inner: given for inner, given in within.items() if given is not None}
        else:
            try:
                values[name] = check(option, value)
            except Unfit as unfit:
                mistakes.add(place, unfit.problem, unfit.hint)
    for option in options:
        if option.required and option.name not in table:
            mistakes.add((*key, option.name), f"missing; expected {option.expected}", option.help)
    return values
