"""Reads one table of a file: checks every key, fills in defaults, notes every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from spreeze_zmq.schema import Option, Unfit, check, did_you_mean, show, suggestion
from spreeze_zmq.topology.mistakes import Key, Mistakes, dotted


def read_table(
    options: Sequence[Option],
    table: Any,
    key: Key,
    mistakes: Mistakes,
    elsewhere: Callable[[str], str] = lambda name: "",
) -> dict[str, Any]:
    """The values of all ``options``; one that is missing or has a mistake has its default.

    Args:
        options: the keys that the table may have.
        table: the table as written.
        key: its place in the file.
        mistakes: where to note unknown keys, values that do not fit and missing required keys.
        elsewhere: gives a hint for an unknown key that another table has, else "".
    """
    values = {option.name: deepcopy(option.default) for option in options}
    if not isinstance(table, Mapping):
        mistakes.add(key, f"expected a table, got {show(table)}", f"write [{dotted(key)}] and its keys below")
        return values
    by_name = {option.name: option for option in options}
    for name, value in table.items():
        if name not in by_name:
            hint = elsewhere(name) or did_you_mean(name, by_name) or suggestion(name, by_name)
            mistakes.add((*key, name), "unknown key", hint)
            continue
        values[name] = _read_value(by_name[name], value, (*key, name), mistakes, elsewhere)
    for option in options:
        if option.required and option.name not in table:
            mistakes.add((*key, option.name), f"missing; expected {option.expected}", option.help)
    return values


def _read_value(
    option: Option, value: Any, key: Key, mistakes: Mistakes, elsewhere: Callable[[str], str]
) -> Any:
    if option.options:
        table = read_table(option.options, value, key, mistakes, elsewhere)
        return {name: given for name, given in table.items() if given is not None}
    try:
        return check(option, value)
    except Unfit as unfit:
        mistakes.add(key, unfit.problem, unfit.hint)
        return deepcopy(option.default)
