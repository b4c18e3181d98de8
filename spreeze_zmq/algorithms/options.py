"""How an algorithm declares its options: a frozen dataclass whose fields carry their limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from spreeze_zmq.errors import InputError

OptionsT = TypeVar("OptionsT")


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
    auto: bool = False,
) -> Any:
    """A dataclass field with its documentation and limits as metadata.

    Args:
        default: the value when the user says nothing; its type is the option's type.
        help: one line.
        minimum: smallest value allowed, itself included; of each element where the option is a tuple.
        maximum: largest value allowed, itself included.
        choices: the only words allowed.
        auto: whether the word ``"auto"`` is allowed beside the numbers.
    """
    return field(
        default=default,
        metadata={"help": help, "minimum": minimum, "maximum": maximum, "choices": choices, "auto": auto},
    )


def check_limits(options: object) -> None:
    """Hold every field of an options dataclass against its own metadata.

    Raises:
        InputError: names the option, its value and what is allowed.
    """
    for item in fields(options):  # type: ignore[arg-type]
        value, limits = getattr(options, item.name), item.metadata
        if limits["auto"] and value == "auto":
            continue
        if limits["choices"] is not None and value not in limits["choices"]:
            raise InputError(f"{item.name} = {value!r}: expected one of {', '.join(limits['choices'])}")
        for number in value if isinstance(value, tuple) else (value,):
            _check_range(item.name, number, limits)


def _check_range(name: str, number: object, limits: Mapping[str, Any]) -> None:
    minimum, maximum = limits["minimum"], limits["maximum"]
    if minimum is None and maximum is None and not limits["auto"]:
        return
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{name} = {number!r}: expected a number" + (' or "auto"' if limits["auto"] else ""))
    # Written so that NaN, which compares false with everything, is refused as well.
    if (minimum is not None and not number >= minimum) or (maximum is not None and not number <= maximum):
        low = "" if minimum is None else f"at least {minimum:g}"
        high = "" if maximum is None else f"at most {maximum:g}"
        raise InputError(
            f"{name} = {number:g}: expected {' and '.join(part for part in (low, high) if part)}"
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest of ``known``, else the list of all."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=2)
    if close:
        return f"; did you mean {' or '.join(repr(name) for name in close)}?"
    return f"; there is {', '.join(names)}"


def options_from(kind: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    """Build an options dataclass from a plain table such as the ``[algorithm]`` of a topology.

    Lists become tuples and whole numbers become floats where the default is one.

    Raises:
        InputError: an unknown name (with the nearest known one) or a value outside the option's limits.
    """
    defaults = {item.name: item.default for item in fields(kind)}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in defaults:
            raise InputError(f"unknown option {name!r}{nearest(name, defaults)}")
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(defaults[name], float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        arguments[name] = value
    return kind(**arguments)
