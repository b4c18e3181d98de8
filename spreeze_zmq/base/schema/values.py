"""Checks a value against its option and converts it to the plan's form; hints at the name that was meant."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from spreeze_zmq.base.schema.option import LARGEST_INT, Option, Unfit, show
from spreeze_zmq.base.schema.scheduled import COUNTS, EXAMPLE, KEYS, NEEDED, SHAPES, is_schedule

#: Options reach networks as numbers of single precision.
LARGEST_SINGLE = 3.4e38
_UNIT_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*")
_MEANT_BOOL = {
    **dict.fromkeys(("true", "yes", "on", "1"), "write true"),
    **dict.fromkeys(("false", "no", "off", "0"), "write false"),
}
_DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?")


def check(option: Option, value: Any) -> Any:
    """The value as the plan holds it; ``None`` for the word ``"none"``.

    Raises:
        Unfit: the option does not accept the value.
    """
    if option.nullable and (value is None or (value == "none" and "none" in option.words)):
        return None
    if isinstance(value, str) and value in option.words:
        return value
    if isinstance(value, Mapping) and (option.schedule or option.by_network):
        return _check_moving(option, value)
    checked = _CHECKS[option.type](option, value)
    if option.choices and checked not in option.choices:
        raise option.unfit(value, did_you_mean(str(checked), map(str, option.choices)))
    return checked


def _check_bounds(option: Option, value: float, written: Any) -> None:
    low = option.minimum is not None and value < option.minimum
    low = low or (option.above is not None and value <= option.above)
    if low or (option.maximum is not None and value > option.maximum):
        raise option.unfit(written)


def _is_finite(value: Any) -> bool:
    """Whether the value is a finite number that fits in 64 bits, for other languages."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST_INT if isinstance(value, int) else math.isfinite(value)


def _number_in(text: str) -> float | None:
    """The finite number that a text spells, if it does."""
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _check_number(option: Option, value: Any) -> int | float:
    """An ``int`` or a ``float``, within the bounds."""
    whole = option.type == "int"
    if whole and isinstance(value, float) and value.is_integer():
        raise option.unfit(value, f"write {int(value)}")
    if isinstance(value, str):
        number = _number_in(value)
        if number is None or (whole and not number.is_integer()):
            raise option.unfit(value, did_you_mean(value, option.words))
        raise option.unfit(value, f"write {int(number) if whole else f'{number:g}'}, without quotes")
    if not _is_finite(value) or (whole and not isinstance(value, int)):
        raise option.unfit(value)
    if abs(value) > LARGEST_SINGLE:
        raise option.unfit(value, "no number of single precision is as large")
    _check_bounds(option, value, value)
    return int(value) if whole else float(value)


def _check_bool(option: Option, value: Any) -> bool:
    if not isinstance(value, bool):
        raise option.unfit(value, _MEANT_BOOL.get(str(value).casefold(), ""))
    return value


def _check_str(option: Option, value: Any) -> str:
    if not isinstance(value, str):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        raise option.unfit(value, f'write "{value}"' if is_number and not option.choices else "")
    if not value:
        raise option.unfit(value)
    return value


def _check_numbers(option: Option, value: Any) -> list[Any]:
    """``ints`` or ``floats``, each within the bounds."""
    if not isinstance(value, list | tuple):
        raise option.unfit(value, f"write [{value}]" if _is_finite(value) else "")
    kind = option.type.removesuffix("s")
    element = Option(option.name, kind, minimum=option.minimum, above=option.above, maximum=option.maximum)
    try:
        return [_CHECKS[kind](element, item) for item in value]
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
    return dict(_check_any(option, value))


def _check_any(option: Option, value: Any) -> Any:
    """Accept only values that JSON can carry to components in any language."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_any(option, item)
    elif not isinstance(value, str | bool) and not _is_finite(value):
        hint = "use finite numbers, texts, lists and tables"
        raise Unfit(f"holds {show(value)}, which the plan cannot carry", hint)
    return value


def _check_count(option: Option, value: Any) -> int | list[int] | str:
    """``2``, ``[1, 8]`` or ``"auto"``: at least 1, and a range in ascending order; 0 alone where the option
    says so by its minimum.
    """
    if value == "auto":
        return "auto"
    ends = list(value) if isinstance(value, list | tuple) else [value]
    if len(ends) > 2 or not ends or not all(isinstance(end, int) and _is_finite(end) for end in ends):
        number = _number_in(value) if isinstance(value, str) else value
        if isinstance(number, float) and number.is_integer():
            raise option.unfit(value, f"write {int(number)}")
        raise option.unfit(value)
    if ends[0] > ends[-1]:
        raise Unfit(f"the range {show(ends)} is reversed", f"write {show(ends[::-1])}")
    if ends[0] < 1 and (ends[0] < 0 or option.minimum != 0 or ends != [0]):
        raise Unfit(f"expected a count of at least 1, got {show(value)}", "--without ROLE leaves a role out")
    return [ends[0], ends[-1]] if isinstance(value, list | tuple) else int(value)


def _check_duration(option: Option, value: Any) -> float:
    """The duration in seconds."""
    seconds = value
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise option.unfit(value, f"the units are {one_of(_UNIT_S)}")
        seconds = float(match[1]) * _UNIT_S[match[2]]
    if not _is_finite(seconds):
        raise option.unfit(value)
    _check_bounds(option, seconds, value)
    return float(seconds)


def _check_device(option: Option, value: Any) -> str:
    if not isinstance(value, str) or _DEVICE.fullmatch(value) is None:
        raise option.unfit(value, did_you_mean(str(value), ("cpu", "cuda", "auto")))
    return value


_CHECKS: dict[str, Callable[[Option, Any], Any]] = {
    "int": _check_number,
    "float": _check_number,
    "bool": _check_bool,
    "str": _check_str,
    "ints": _check_numbers,
    "floats": _check_numbers,
    "strs": _check_strs,
    "table": _check_table,
    "count": _check_count,
    "duration": _check_duration,
    "device": _check_device,
    "any": _check_any,
}


# --- numbers that move, or that differ by network


def _check_moving(option: Option, value: Mapping[str, Any]) -> dict[str, Any]:
    """A schedule, or a table of numbers and schedules by network."""
    if is_schedule(value) or not option.by_network:
        if not option.schedule:
            raise Unfit(f"cannot be a schedule: expected {option.expected}, or one by network")
        return _check_schedule(option, value)
    if not value:
        raise option.unfit(value, f"as in {{ critic = {option.default} }}")
    checked = {}
    for network, inner in value.items():
        try:
            checked[network] = check(dataclasses.replace(option, by_network=False), inner)
        except Unfit as unfit:
            raise Unfit(f"{network}: {unfit.problem}", unfit.hint) from None
    return checked


def _check_schedule(option: Option, value: Mapping[str, Any]) -> dict[str, Any]:
    for key in value:
        if key not in KEYS:
            raise Unfit(f"a schedule has no {show(key)}", suggestion(str(key), KEYS))
    for key in NEEDED:
        if key not in value:
            raise Unfit(f'its schedule lacks "{key}"', f"as in {EXAMPLE}")
    ends = {}
    for key in NEEDED:
        try:
            ends[key] = float(_check_number(option, value[key]))
        except Unfit as unfit:
            raise Unfit(f'"{key}" of its schedule: {unfit.problem}', unfit.hint) from None
    shape = value.get("shape", "linear")
    if shape not in SHAPES:
        problem = f'"shape" of its schedule: expected one of {one_of(SHAPES)}, got {show(shape)}'
        raise Unfit(problem, did_you_mean(str(shape), SHAPES))
    return {**ends, "over": _check_over(value.get("over", "run")), "shape": shape}


def _check_over(over: Any) -> str | dict[str, float]:
    """``"run"``, or the counts that a schedule ends at, by their names in ``[run.stop]``."""
    if over == "run":
        return "run"
    expected = '"over" of its schedule: expected "run", or a table such as { env_steps = 1000000 }'
    if not isinstance(over, Mapping) or not over:
        meant = isinstance(over, int | float) and _is_finite(over) and over > 0
        steps = f"write {{ env_steps = {over} }} or {{ trained_transitions = {over} }}"
        raise Unfit(f"{expected}, got {show(over)}", steps if meant else "")
    for name, end in over.items():
        if name not in COUNTS:
            raise Unfit(f'"over" of its schedule has no {show(name)}', suggestion(str(name), COUNTS))
        if not _is_finite(end) or end <= 0:
            raise Unfit(f'"over" of its schedule: {name}: expected a number above 0, got {show(end)}')
    return dict(over)


# --- hints at the name that an unknown one may stand for

#: A hint lists at most this many names.
MOST_NAMES = 20


def nearest(word: str, names: Iterable[str], likeness: float) -> str:
    """The known name nearest to ``word``; empty if none is as near as ``likeness`` (difflib's ratio)."""
    return next(iter(near_ones(word, names, likeness, 1)), "")


def near_ones(word: str, names: Iterable[str], likeness: float = 0.6, most: int = 3) -> list[str]:
    """The known names at least that near to ``word``, whatever their case, the nearest first."""
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(name.casefold(), []).append(name)
    found = get_close_matches(word.casefold(), by_folded, most, likeness)
    return [get_close_matches(word, by_folded[folded], 1, 0.0)[0] for folded in found]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A hint with the known name nearest to ``word``; empty if none is near."""
    names = list(names)
    found, folded = nearest(word, names, 0.6), word.casefold()
    if not found and len(folded) > 2:
        pairs = ((name, name.casefold()) for name in names)
        found = next((name for name, low in pairs if low.startswith(folded) or folded.startswith(low)), "")
    return f'did you mean "{found}"?' if found else ""


def one_of(names: Iterable[str]) -> str:
    """The names as a message lists them: ``"a", "b"``."""
    return ", ".join(f'"{name}"' for name in names)


def suggestion(word: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, else all of them."""
    names = list(names)
    known = f"known: {', '.join(names)}" if len(names) <= MOST_NAMES else "spreeze options lists all"
    return did_you_mean(word, names) or known
