"""Typed options: the one mechanism that checks every value a user can write into a topology."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.topology.mistakes import Key, Mistakes, dotted, one_of, suggestion

#: Every type that an option can have, as a component.toml names it, and how a message says it.
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

_UNIT_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*")
_DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?")


class Unfit(Exception):  # noqa: N818  (a verdict on one value, turned into a Mistake by the caller)
    """A value that an option does not take; ``hint`` says how to mend it."""

    def __init__(self, problem: str, hint: str = ""):
        self.problem, self.hint = problem, hint
        super().__init__(problem)


@dataclass(frozen=True)
class Option:
    """One key that a table may hold.

    Attributes:
        name: the key.
        type: one of ``TYPES``.
        default: what it is when it is not written; never checked, so it may be ``None``.
        help: one line for people.
        minimum: smallest number allowed, itself included; for lists, of each element; for ``strs``, of the length.
        above: number that the value must exceed.
        maximum: largest number allowed, itself included.
        choices: the only texts or numbers allowed.
        words: texts taken besides values of ``type``, such as ``"auto"``.
        required: it has no default.
        options: the keys of a ``table`` whose keys are known; empty for one that holds anything.
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
        """What the option takes, in words."""
        if self.choices:
            text = "one of " + ", ".join(show(choice) for choice in self.choices)
        else:
            text = TYPES[self.type] + self._bounds
        return " or ".join([text, *(f'"{word}"' for word in self.words)])

    @property
    def _bounds(self) -> str:
        if self.above is not None:
            return f" above {self.above:g}" + (f" and at most {self.maximum:g}" if self.maximum is not None else "")
        if self.minimum is not None and self.maximum is not None:
            return f" from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f" of at least {self.minimum:g}"
        return f" of at most {self.maximum:g}" if self.maximum is not None else ""

    def check(self, value: Any) -> Any:
        """The value as the plan holds it.

        Raises:
            Unfit: the option does not take it.
        """
        if isinstance(value, str) and value in self.words:
            return value
        checked = _CHECKS[self.type](self, value)
        if self.choices and checked not in self.choices:
            hint = suggestion(value, [str(choice) for choice in self.choices]) if isinstance(value, str) else ""
            raise Unfit(f"expected {self.expected}, got {show(value)}", hint if hint.startswith("did") else "")
        return checked

    def unfit(self, value: Any, hint: str = "") -> Unfit:
        """The verdict that says what was expected and what came."""
        return Unfit(f"expected {self.expected}, got {show(value)}", hint)


def show(value: Any) -> str:
    """A value as a message shows it, its type visible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 80 else f'"{value[:77]}..."'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]" if len(value) <= 8 else f"a list of {len(value)}"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date or time {value}"
    return str(value)


def read_table(
    options: Sequence[Option],
    table: Any,
    key: Key,
    mistakes: Mistakes,
    elsewhere: Callable[[str], str] = lambda name: "",
) -> dict[str, Any]:
    """The values of all ``options``, defaults filled in; every unknown key and unfit value is noted.

    ``elsewhere(name)`` gives a hint for an unknown key that is known in another table, or nothing.
    An option with a mistake keeps its default.
    """
    values = {option.name: option.default for option in options}
    if not isinstance(table, Mapping):
        mistakes.add(key, f"expected a table, got {show(table)}", f"write [{dotted(key)}] and its keys below")
        return values
    by_name = {option.name: option for option in options}
    for name, value in table.items():
        if name not in by_name:
            near = suggestion(name, by_name)
            mistakes.add((*key, name), "unknown key", near if near.startswith("did") else elsewhere(name) or near)
            continue
        values[name] = _read_value(by_name[name], value, (*key, name), mistakes)
    for option in options:
        if option.required and option.name not in table:
            mistakes.add((*key, option.name), f"missing; expected {option.expected}", option.help)
    return values


def _read_value(option: Option, value: Any, key: Key, mistakes: Mistakes) -> Any:
    if option.options:
        return {k: v for k, v in read_table(option.options, value, key, mistakes).items() if v is not None}
    try:
        return option.check(value)
    except Unfit as unfit:
        mistakes.add(key, unfit.problem, unfit.hint)
        return option.default


def _check_bounds(option: Option, value: float, written: Any) -> None:
    low = option.minimum is not None and value < option.minimum
    low = low or (option.above is not None and value <= option.above)
    if low or (option.maximum is not None and value > option.maximum):
        raise option.unfit(written)


def _number_in(text: str) -> float | None:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return None


def _check_int(option: Option, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        raise option.unfit(value, f"write {int(value)}")
    if isinstance(value, str):
        number = _number_in(value)
        whole = number is not None and math.isfinite(number) and number.is_integer()
        raise option.unfit(value, f"write {int(number or 0)}, without quotes" if whole else _word_hint(option, value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise option.unfit(value)
    _check_bounds(option, value, value)
    return value


def _check_float(option: Option, value: Any) -> float:
    if isinstance(value, str):
        number = _number_in(value)
        raise option.unfit(value, f"write {number:g}, without quotes" if number is not None else _word_hint(option, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise option.unfit(value)
    _check_bounds(option, value, value)
    return float(value)


def _word_hint(option: Option, value: str) -> str:
    hint = suggestion(value, option.words)
    return hint if hint.startswith("did") else ""


def _check_bool(option: Option, value: Any) -> bool:
    if not isinstance(value, bool):
        meant = {"true": "true", "yes": "true", "on": "true", "1": "true"} | dict.fromkeys(
            ("false", "no", "off", "0"), "false"
        )
        written = meant.get(str(value).casefold())
        raise option.unfit(value, f"write {written}" if written else "")
    return value


def _check_str(option: Option, value: Any) -> str:
    if not isinstance(value, str):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        raise option.unfit(value, f'write "{value}"' if is_number and not option.choices else "")
    if not value:
        raise option.unfit(value)
    return value


def _check_ints(option: Option, value: Any) -> list[int]:
    if not isinstance(value, list | tuple):
        raise option.unfit(value, f"write [{value}]" if isinstance(value, int) else "")
    element = Option(option.name, "int", minimum=option.minimum, above=option.above, maximum=option.maximum)
    try:
        return [_check_int(element, item) for item in value]
    except Unfit as unfit:
        raise option.unfit(value, unfit.hint) from None


def _check_strs(option: Option, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise option.unfit(value, f'write ["{value}"]' if isinstance(value, str) else "")
    if len(value) < (option.minimum or 0):
        raise option.unfit(value)
    return list(value)


def _check_table(option: Option, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise option.unfit(value)
    _check_plain(option, value)
    return dict(value)


def _check_plain(option: Option, value: Any) -> None:
    """Only what JSON can carry: the plan takes it to components in any language."""
    if isinstance(value, Mapping):
        for item in value.values():
            _check_plain(option, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(option, item)
    elif not isinstance(value, str | bool | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise Unfit(f"holds {show(value)}, which the plan cannot carry", "use finite numbers, texts, lists and tables")


def _check_any(option: Option, value: Any) -> Any:
    _check_plain(option, value)
    return value


def _check_count(option: Option, value: Any) -> int | list[int] | str:
    """``2``, ``[1, 8]`` or ``"auto"``; nothing is run fewer than once, and a range runs upwards."""
    if value == "auto":
        return "auto"
    if isinstance(value, list | tuple):
        if len(value) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) for n in value):
            raise option.unfit(value)
        low, high = value
        if low > high:
            raise Unfit(f"the range [{low}, {high}] is reversed", f"write [{high}, {low}]" if high > 0 else "")
    elif isinstance(value, bool) or not isinstance(value, int):
        number = value if isinstance(value, float) else _number_in(value) if isinstance(value, str) else None
        whole = number is not None and math.isfinite(number) and float(number).is_integer()
        raise option.unfit(value, f"write {int(number)}" if whole and number is not None else "")
    else:
        low = value
    if low < 1:
        raise Unfit(f"a count of at least 1 was expected, got {show(value)}", "leave a role out with --without ROLE")
    return list(value) if isinstance(value, list | tuple) else int(value)


def _check_duration(option: Option, value: Any) -> float:
    """Seconds."""
    seconds = value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise option.unfit(value, f"the units are {one_of(_UNIT_S)}")
        seconds = float(match[1]) * _UNIT_S[match[2]]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise option.unfit(value)
    _check_bounds(option, seconds, value)
    return float(seconds)


def _check_device(option: Option, value: Any) -> str:
    if not isinstance(value, str) or _DEVICE.fullmatch(value) is None:
        hint = suggestion(value, ("cpu", "cuda", "auto")) if isinstance(value, str) else ""
        raise option.unfit(value, hint if hint.startswith("did") else "")
    return value


_CHECKS: dict[str, Callable[[Option, Any], Any]] = {
    "int": _check_int,
    "float": _check_float,
    "bool": _check_bool,
    "str": _check_str,
    "ints": _check_ints,
    "strs": _check_strs,
    "table": _check_table,
    "count": _check_count,
    "duration": _check_duration,
    "device": _check_device,
    "any": _check_any,
}
