"""Typed options: the values that a key of a topology accepts, and their description in messages."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Type names and the phrase that messages use for each; component.toml may write any but ``count``.
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text in quotes",
    "ints": "a list of whole numbers",
    "strs": "a list of texts",
    "table": "a table of keys and values",
    "count": 'a count such as 2, a range such as [1, 8], or "auto"',
    "duration": 'seconds, or a text such as "500 ms", "30 s" or "5 min"',
    "device": '"cpu", "cuda", "cuda:1" or "auto"',
    "any": "a value",
}


#: Components in any language must be able to hold a whole number: 64 bits.
LARGEST_INT = 2**63 - 1


class Unfit(Exception):
    """An option does not accept a value; ``hint`` names the fix."""

    def __init__(self, problem: str, hint: str = ""):
        self.problem, self.hint = problem, hint
        super().__init__(problem)


@dataclass(frozen=True)
class Option:
    """One key of a table.

    Attributes:
        name: the key.
        type: one of ``TYPES``.
        default: the value of a key that is not written; not checked, so it may be ``None``.
        help: one line for people.
        minimum: inclusive lower bound; for ``ints``, of each element; for ``strs``, of the length.
        above: exclusive lower bound.
        maximum: inclusive upper bound.
        choices: the only texts or numbers allowed.
        words: texts accepted besides values of ``type``, such as ``"auto"``.
        required: the key has no default.
        options: the keys of a ``table``; empty where any key is accepted.
    """

    name: str
    type: str
    default: Any = None
    help: str = ""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    words: tuple[str, ...] = ()
    required: bool = False
    options: tuple[Option, ...] = ()

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        if self.choices:
            text = "one of " + ", ".join(show(choice) for choice in self.choices)
        else:
            text = TYPES[self.type] + self._bounds
        return " or ".join([text, *(f'"{word}"' for word in self.words)])

    @property
    def _bounds(self) -> str:
        parts = [f" above {_number(self.above)}"] if self.above is not None else []
        if self.minimum is not None:
            parts.append(f" of at least {_number(self.minimum)}")
        if self.maximum is not None:
            parts.append(f"{' and' if parts else ' of'} at most {_number(self.maximum)}")
        return "".join(parts)

    def unfit(self, value: Any, hint: str = "") -> Unfit:
        """The error that says what was expected and what came."""
        return Unfit(f"expected {self.expected}, got {show(value)}", hint)


def show(value: Any) -> str:
    """A value as messages show it: its TOML type is visible, long ones are shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 80 else f"{value[:77]}...", ensure_ascii=False)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]" if len(value) <= 8 else f"a list of {len(value)}"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date or time {value}"
    if isinstance(value, int) and abs(value) > LARGEST_INT:
        return "one beyond 64 bits"
    return str(value)


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() and abs(bound) < 1e15 else f"{bound:g}"
