"""Declares an option once, as a field of a frozen dataclass by :func:`option`.

These fields validate a topology, name the keys of run.json and are what ``spreeze options`` prints.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from spreeze_zmq.base.errors import InputError

#: Type names and the phrase for each in messages; component.toml may use any but ``count``.
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text in quotes",
    "ints": "a list of whole numbers",
    "floats": "a list of numbers",
    "strs": "a list of texts",
    "table": "a table of keys and values",
    "count": 'a count such as 2, a range such as [1, 8], or "auto"',
    "duration": 'seconds, or a text such as "500 ms", "30 s" or "5 min"',
    "device": '"cpu", "cuda", "cuda:1" or "auto"',
    "any": "a value",
}

#: What a ``count`` with an upper bound takes.
_COUNTS: dict[float | None, str] = {1.0: '1 or "auto"', 0.0: '"auto"'}
#: Largest whole number: components in any language must be able to hold it.
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
        minimum: inclusive lower bound, of each element of a list of numbers, of the length of ``strs``.
        above: exclusive lower bound.
        maximum: inclusive upper bound; of a ``count`` 1 where there is one process, 0 where no number is
            written.
        choices: the only texts or numbers allowed.
        words: texts accepted besides values of ``type``, such as ``"auto"``.
        required: the key has no default.
        nullable: the value may be ``None``, which files write as ``"none"``.
        options: the keys of a ``table``; empty if any key is accepted.
        follows: how it, a ``float``, scales with a measured batch size, ``"sqrt"`` or ``"average"``
            (``RULES`` of :mod:`spreeze_zmq.algorithms.options`); empty if it does not.
        fixed: another value makes other networks, or gives theirs another meaning, so that no earlier
            checkpoint fits.
        initial: it is of fresh networks alone, so that it has no effect in a run that goes on from another.
        only_with: an option that may leave this one without effect; empty if none does.
        only_at: the values of that option at which this one has an effect; empty for all but ``idle_at``.
        idle_at: the values of that option at which it has none.
        schedule: the value, a ``float``, may move along the run: a :class:`Scheduled` in the form of a table.
        by_network: the value may be a table of values by network.
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
    nullable: bool = False
    options: tuple[Option, ...] = ()
    follows: str = ""
    fixed: bool = False
    initial: bool = False
    only_with: str = ""
    only_at: tuple[Any, ...] = ()
    idle_at: tuple[Any, ...] = ()
    schedule: bool = False
    by_network: bool = False

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        if self.choices:
            text = "one of " + ", ".join(show(choice) for choice in self.choices)
        elif self.type == "count":
            text = _COUNTS.get(self.maximum, TYPES["count"])
        else:
            text = TYPES[self.type] + self._bounds
        return " or ".join([text, *(f'"{word}"' for word in self.words)])

    @property
    def takes(self) -> str:
        """The accepted values with the tables that may stand for one number."""
        tables = ["a schedule"] * self.schedule + ["a table by network"] * self.by_network
        return ", or ".join([self.expected, *tables])

    @property
    def _bounds(self) -> str:
        parts = [f" above {_number(self.above)}"] if self.above is not None else []
        if self.minimum is not None:
            parts.append(f" of at least {_number(self.minimum)}")
        if self.maximum is not None:
            parts.append(f"{' and' if parts else ' of'} at most {_number(self.maximum)}")
        return "".join(parts)

    def has_effect(self, values: Mapping[str, Any]) -> bool:
        """Whether it has an effect beside the other options of its table, which have these ``values``."""
        if not self.only_with:
            return True
        value = values[self.only_with]
        return value in self.only_at if self.only_at else value not in self.idle_at

    def unfit(self, value: Any, hint: str = "") -> Unfit:
        """The error with the accepted values and the given one."""
        return Unfit(f"expected {self.expected}, got {show(value)}", hint)


def option(
    default: Any = dataclasses.MISSING, help: str = "", *, name: str = "", type: str = "", **accepted: Any
) -> Any:
    """A dataclass field that is an option; without a default it is required.

    Args:
        default: its default; a class, such as ``dict``, is called for each value.
        help: one line for people.
        name: the key in files, if that is a Python keyword; by default the field's name.
        type: one of ``TYPES``, if it does not follow from the annotation.
        accepted: ``minimum``, ``above``, ``maximum``, ``choices``, ``words``, ``follows``, ``fixed``,
            ``initial``, ``only_with``, ``only_at``, ``idle_at``, ``schedule``, ``by_network``: as in
            :class:`Option`.
    """
    declared = Option(name, type, help=help, required=default is dataclasses.MISSING, **accepted)
    return dataclasses.field(**_made(default), metadata={"option": declared})


def with_default(kind: Any, name: str, default: Any) -> Any:
    """The option ``name`` that a dataclass inherits from ``kind``, with another default."""
    return dataclasses.field(**_made(default), metadata=kind.__dataclass_fields__[name].metadata)


def own_fields(kind: type) -> list[str]:
    """The names of the fields that a dataclass declares itself, those with another default than its base's
    among them. Since Python 3.14 a class's ``__dict__`` has no ``__annotations__`` that would say it.
    """
    above = [vars(base).get("__dataclass_fields__", {}) for base in kind.__mro__[1:]]
    fields = vars(kind).get("__dataclass_fields__", {}).items()
    return [name for name, field in fields if all(each.get(name) is not field for each in above)]


def _made(default: Any) -> dict[str, Any]:
    """The default as ``dataclasses.field`` takes it: made for each object where it could be changed."""
    if isinstance(default, dict):
        return {"default_factory": lambda: copy.deepcopy(default)}
    return {"default_factory": default} if callable(default) else {"default": default}


def options_of(kind: Any) -> tuple[Option, ...]:
    """The options of a dataclass: its fields that are declared by :func:`option`, in their order.

    Raises:
        InputError: an annotation has no counterpart in ``TYPES``.
    """
    return _options_of(kind)  # mypy takes no ``type[Any]`` where a cached function wants a Hashable


@cache
def _options_of(kind: Any) -> tuple[Option, ...]:
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise InputError(f"an annotation of {kind.__qualname__} is unknown: {error}") from None
    declared = [field for field in dataclasses.fields(kind) if "option" in field.metadata]
    return tuple(_complete(field, hints[field.name]) for field in declared)


def _complete(field: dataclasses.Field[Any], hint: Any) -> Option:
    """The declared option with the name, type and default of its field."""
    declared: Option = field.metadata["option"]
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [member for member in members if member is not NoneType]
    # A text in a union is one of the words.
    member = next((member for member in kinds if not (declared.words and _is_text(member))), kinds[0])
    kind = declared.type or _type_name(field.name, member)
    nullable = NoneType in members
    default: Any = field.default
    is_nested = kind == "table" and dataclasses.is_dataclass(member)
    if is_nested:
        default = {}
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return dataclasses.replace(
        declared,
        name=declared.name or field.name,
        type=kind,
        default=None if declared.required else list(default) if isinstance(default, tuple) else default,
        choices=declared.choices or (get_args(member) if get_origin(member) is Literal else ()),
        # The text "none" is a value of a str.
        words=("none", *declared.words) if nullable and kind != "str" else declared.words,
        nullable=nullable,
        options=options_of(member) if is_nested else (),
    )


def _is_text(kind: Any) -> bool:
    return kind is str or get_origin(kind) is Literal


def _type_name(name: str, kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _type_name(name, type(arguments[0]))
    if dataclasses.is_dataclass(kind) or (origin or kind) is dict:
        return "table"
    names = {bool: "bool", int: "int", float: "float", str: "str"}
    found = names.get(arguments[0], "") + "s" if origin in (tuple, list, Sequence) else names.get(kind, "")
    if found not in TYPES:
        known = "bool, int, float, str, tuple[int, ...], tuple[float, ...], tuple[str, ...], Literal, dict"
        raise InputError(f"option {name}: its annotation {kind} is none of {known}")
    return found


def show(value: Any) -> str:
    """A value for messages: as TOML writes it, and shortened."""
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
