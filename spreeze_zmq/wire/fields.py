"""The types of fields and arrays, and the checks that a message has the ones that its kind requires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire.consistency import Arrays

#: The dtypes that may travel, by the name that stands in the header.
DTYPE_NAMES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
# NumPy has two 64-bit integer types of one name, and ``dtype.name`` takes 1 us: look it up by number.
_NAME_OF_NUM = {np.dtype(code).num: np.dtype(code).name for code in (*DTYPE_NAMES, "q", "Q", "l", "L")}


def dtype_name(array: NDArray[Any]) -> str | None:
    """The name of the dtype of ``array`` in headers, in either byte order; None if it cannot travel."""
    return _NAME_OF_NUM.get(array.dtype.num)


#: Counts and versions stay below this, so that a language whose numbers are doubles holds them exactly.
MAX_COUNT = 2**53


#: The keys of a learner's account of one stream, in transitions.
RECEIPT = {"first", "last", "received", "refused", "lost"}

Test = Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _map_of(is_right: Test) -> Test:
    return lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


def _list_of(is_right: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


_is_counts = _map_of(_is_count)


def _is_receipt(value: Any) -> bool:
    """Every transition between ``first`` and ``last`` is received, refused or lost."""
    return (
        _is_counts(value)
        and value.keys() >= RECEIPT
        and value["received"] + value["refused"] + value["lost"] == value["last"] - value["first"]
    )


#: The types that a field can have. NaN and infinities are numbers: a diverging loss must still be reported.
FIELD_TYPES: dict[str, Test] = {
    "count": _is_count,
    "number": _is_number,
    "text": _is_text,
    "flag": lambda value: isinstance(value, bool),
    "names": _list_of(_is_text),
    "numbers": _map_of(_is_number),
    "counts": _is_counts,
    "streams": _map_of(_is_receipt),
    "map": _is_map,
    "maps": _list_of(_is_map),
    "rows": _map_of(_is_map),
    "any": lambda value: True,
}


@dataclass(frozen=True)
class FieldSpec:
    """One field: ``type`` is a key of :data:`FIELD_TYPES`, ``most`` the greatest value of a count."""

    type: str
    required: bool = True
    most: int = MAX_COUNT - 1

    @property
    def test(self) -> Test:
        """Whether a value is right."""
        is_right, most = FIELD_TYPES[self.type], self.most
        if most == MAX_COUNT - 1:
            return is_right
        return lambda value: is_right(value) and bool(value <= most)

    def __str__(self) -> str:
        return self.type if self.most == MAX_COUNT - 1 else f"{self.type} of at most {self.most:,}"


@dataclass(frozen=True)
class ArraySpec:
    """One array: the dtypes it may have and its least and greatest rank."""

    dtypes: tuple[str, ...]
    min_rank: int
    max_rank: int
    required: bool = True


@dataclass(frozen=True)
class KindSpec:
    """One kind of message.

    Attributes:
        fields: its fields; unknown ones pass unread, so that newer senders can add some.
        arrays: its arrays; unknown ones pass likewise.
        retained: a publisher repeats the latest message of this kind to later subscribers.
        retained_by: names of fields; the latest message for each combination of their values is repeated.
        cumulative: its figures count from the start of the sender, so that the newest message of one says all
            that the earlier ones do.
        cross_check: raises WireError where its fields and arrays contradict each other.
    """

    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    retained: bool = False
    retained_by: tuple[str, ...] = ()
    cumulative: bool = False
    cross_check: Callable[[Mapping[str, Any], Arrays], None] | None = None

    @cached_property
    def field_checks(self) -> list[tuple[str, Test, bool]]:
        """For each field its name, its test and whether it is required."""
        return [(name, spec.test, spec.required) for name, spec in self.fields.items()]


def check_fields(kind: str, spec: KindSpec, fields: Mapping[str, Any]) -> None:
    """Raise WireError unless ``fields`` has every required field, and each known one has its type."""
    for name, is_right, required in spec.field_checks:
        if name in fields:
            if not is_right(fields[name]):
                wanted = spec.fields[name]
                raise WireError(
                    "wrong_field_type", f"{kind}.{name} is {fields[name]!r:.60}, expected a {wanted}"
                )
        elif required:
            raise WireError("missing_field", f"{kind} has no field {name!r}")


def check_arrays(kind: str, spec: KindSpec, arrays: Mapping[str, tuple[str, int]]) -> None:
    """Raise WireError unless ``arrays``, a dtype name and a rank by array name, are as ``spec`` requires."""
    for name, wanted in spec.arrays.items():
        if name not in arrays:
            if wanted.required:
                raise WireError("missing_array", f"{kind} has no array {name!r}")
            continue
        dtype, rank = arrays[name]
        if dtype not in wanted.dtypes:
            raise WireError("wrong_dtype", f"{kind}.{name} is {dtype}, expected {' or '.join(wanted.dtypes)}")
        if not wanted.min_rank <= rank <= wanted.max_rank:
            raise WireError(
                "wrong_rank", f"{kind}.{name} has rank {rank}, at least {wanted.min_rank} expected"
            )
