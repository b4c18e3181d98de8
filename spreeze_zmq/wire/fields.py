"""What the fields and arrays of a message can be, and the check that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import WireError
from spreeze_zmq.wire.consistency import Arrays

#: The dtypes that may travel, by the name that stands in the header.
DTYPE_NAMES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
# NumPy has two 64-bit integer types of one name, and takes 1 us to tell a dtype's name: look it up by number.
_NAME_OF_NUM = {np.dtype(code).num: np.dtype(code).name for code in (*DTYPE_NAMES, "q", "Q", "l", "L")}


def dtype_name(array: NDArray[Any]) -> str | None:
    """The name under which the dtype of ``array`` travels, in either byte order; None where it cannot."""
    return _NAME_OF_NUM.get(array.dtype.num)


#: Counts and versions stay below this, so that a language whose numbers are doubles holds them exactly.
MAX_COUNT = 2**53


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(item) for item in value.values())


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and all(_is_count(item) for item in value.values())


def _is_streams(value: object) -> bool:
    """All between ``first`` and ``last`` of each stream is received, refused or lost."""
    return isinstance(value, dict) and all(
        _is_counts(item)
        and item.keys() >= RECEIPT
        and item["received"] + item["refused"] + item["lost"] == item["last"] - item["first"]
        for item in value.values()
    )


def _is_maps(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


#: What a learner says of each stream, in transitions.
RECEIPT = {"first", "last", "received", "refused", "lost"}

#: The types that a field can have. NaN and infinities are numbers: a diverging loss must still be reported.
FIELD_TYPES: dict[str, Callable[[object], bool]] = {
    "count": _is_count,
    "number": _is_number,
    "text": lambda value: isinstance(value, str),
    "flag": lambda value: isinstance(value, bool),
    "names": _is_names,
    "numbers": _is_numbers,
    "counts": _is_counts,
    "streams": _is_streams,
    "map": lambda value: isinstance(value, dict),
    "maps": _is_maps,
    "rows": lambda value: _is_maps(list(value.values())) if isinstance(value, dict) else False,
    "any": lambda value: True,
}


@dataclass(frozen=True)
class FieldSpec:
    """One field: ``type`` is a key of :data:`FIELD_TYPES`."""

    type: str
    required: bool = True


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
        fields: the fields it carries; others are let through unread, so that newer senders can add some.
        arrays: the arrays it carries; others likewise.
        retained: a publisher sends the latest message of this kind again to later subscribers.
        retained_by: fields; the latest message for each of their values is sent again.
        cross_check: what must hold between its fields and arrays; raises WireError.
    """

    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    arrays: Mapping[str, ArraySpec] = field(default_factory=dict)
    retained: bool = False
    retained_by: tuple[str, ...] = ()
    cross_check: Callable[[Mapping[str, Any], Arrays], None] | None = None

    @cached_property
    def field_checks(self) -> list[tuple[str, Callable[[object], bool], bool]]:
        """Name, test and whether it is required, of each field."""
        return [(name, FIELD_TYPES[spec.type], spec.required) for name, spec in self.fields.items()]


def check_fields(kind: str, spec: KindSpec, fields: Mapping[str, Any]) -> None:
    """Raise WireError unless ``fields`` are what a message of ``kind`` must carry."""
    for name, is_right, required in spec.field_checks:
        if name in fields:
            if not is_right(fields[name]):
                wanted = spec.fields[name].type
                raise WireError(
                    "wrong_field_type", f"{kind}.{name} is {fields[name]!r:.60}, expected a {wanted}"
                )
        elif required:
            raise WireError("missing_field", f"{kind} has no field {name!r}")


def check_arrays(kind: str, spec: KindSpec, arrays: Mapping[str, tuple[str, int]]) -> None:
    """Raise WireError unless ``arrays``, each a dtype's name and a rank, are what a message of ``kind`` must
    carry.
    """
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
