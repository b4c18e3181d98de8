"""Packs and unpacks the header of a message, a msgpack map, as two halves.

The head (kind, sender, arrays) hardly changes between messages; the tail (sequence, fields) always does. The
head's entries come first in the map, so that a head is checked once and then looked up by its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgpack
import numpy as np

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import MAX_RANK
from spreeze_zmq.wire.fields import DTYPE_NAMES, MAX_COUNT, KindSpec, check_arrays, check_fields
from spreeze_zmq.wire.kinds import KINDS

PROTOCOL_VERSION = 1
MAX_HEADER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 1 << 30
MAX_MESSAGE_BYTES = 1 << 31
MAX_ARRAYS = 64
#: Most entries of one list or map in a header: a forged length must not make the reader allocate memory.
MAX_ENTRIES = 4096
#: Longest name of a sender, in bytes: reports and limits of collection list many.
MAX_SENDER_BYTES = 64
#: Longest quotation of a name in a refused header, in characters.
MAX_CLAIM = 40
#: How many heads are cached, two for each process of a large run, and the longest head that is.
_HEADS, _HEAD_BYTES = 4096, 2048

#: The dtypes that may travel, always little-endian and in C order.
DTYPES: dict[str, np.dtype[np.generic]] = {
    name: cast("np.dtype[np.generic]", np.dtype(name).newbyteorder("<")) for name in DTYPE_NAMES
}

_HEAD_TYPES = {"protocol": int, "kind": str, "sender": str, "incarnation": int, "arrays": list}
_TAIL_TYPES = {"sequence": int, "fields": dict}
_TAIL_BEGINS = msgpack.packb("sequence")
#: First byte of a msgpack map of up to 15 entries, to which their number is added.
_MAP = 0x80
#: First byte of a whole header, without or with ``repeat``, to the first byte of its tail as a map.
_TAIL_COUNTS = {_MAP + len(_HEAD_TYPES) + tail: bytes((_MAP + tail,)) for tail in (2, 3)}
#: One array as a sender describes it: name, dtype and shape.
Described = tuple[str, str, tuple[int, ...]]


class ArrayHead(NamedTuple):
    """One array as the header describes it; ``num_bytes`` is the length of its frame."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    num_bytes: int


class Head(NamedTuple):
    """The half that all messages of one kind and shape from one incarnation of a process share."""

    kind: str
    sender: str
    incarnation: int
    arrays: tuple[ArrayHead, ...]
    spec: KindSpec


class Tail(NamedTuple):
    """The half that differs in each message."""

    sequence: int
    fields: dict[str, Any]
    repeat: bool


def pack(
    kind: str, sender: str, incarnation: int, arrays: tuple[Described, ...], tail: Tail
) -> tuple[bytes, KindSpec]:
    """The header's frame, and the specification of its kind.

    Raises:
        WireError: a receiver would refuse it.
    """
    head, spec = _packed_head(kind, sender, incarnation, arrays, tail.repeat)
    check_fields(kind, spec, tail.fields)
    entries: dict[str, Any] = {"sequence": tail.sequence, "fields": tail.fields}
    if tail.repeat:
        entries["repeat"] = True
    packed = head + _pack(kind, entries)[1:]
    if len(packed) > MAX_HEADER_BYTES:
        raise WireError("oversize_header", f"{len(packed)} bytes, at most {MAX_HEADER_BYTES}")
    return packed, spec


@lru_cache(_HEADS)
def _packed_head(
    kind: str, sender: str, incarnation: int, arrays: tuple[Described, ...], repeat: bool
) -> tuple[bytes, KindSpec]:
    """The bytes of a header up to the end of its head."""
    values = (PROTOCOL_VERSION, kind, sender, incarnation, [list(array) for array in arrays])
    entries = dict(zip(_HEAD_TYPES, values, strict=True))
    count = _MAP + len(_HEAD_TYPES) + len(_TAIL_TYPES) + repeat
    return bytes((count,)) + _pack(kind, entries)[1:], _head(entries).spec


def _pack(kind: str, entries: Mapping[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.Packer(default=_plain).pack(entries)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError("bad_header", f"{kind}: {error}") from error
    return packed


def _plain(value: object) -> Any:
    """Convert NumPy scalars, the only other objects that a header takes."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot travel in a header")


def unpack(frame: bytes) -> tuple[Head, Tail]:
    """Both halves of a header.

    Raises:
        WireError: it breaks a rule of the protocol.
    """
    if len(frame) > MAX_HEADER_BYTES:
        raise WireError("oversize_header", f"{len(frame)} bytes, at most {MAX_HEADER_BYTES}")
    end = frame.find(_TAIL_BEGINS, 0, _HEAD_BYTES)
    if end > 0:
        try:
            return _unpack_halves(frame, end)
        except WireError:
            pass  # in another order, or broken: parsing the whole header names the mistake
    entries = _unpack(frame)
    if not isinstance(entries, dict):
        raise WireError("header_not_map", f"the header is a {type(entries).__name__}")
    head = _head(entries)
    return head, _tail(entries, head)


def head_of(frame: bytes) -> Head | None:
    """The first half of a header alone, if that is where it should be and breaks no rule; costs a look-up by
    its bytes.
    """
    end = frame.find(_TAIL_BEGINS, 0, _HEAD_BYTES)
    try:
        return _known_head(frame[1:end]) if end > 0 else None
    except WireError:
        return None


def claimed(frame: bytes) -> dict[str, Any]:
    """The unverified entries of a refused header that have the right types, ``sender`` and ``kind`` without
    unprintable characters; empty if the header is not a map.
    """
    try:
        entries = _unpack(frame) if len(frame) <= MAX_HEADER_BYTES else None
    except WireError:
        return {}
    if not isinstance(entries, dict):
        return {}
    types = {**_HEAD_TYPES, **_TAIL_TYPES}
    found = {key: entries[key] for key in types if key in entries and type(entries[key]) is types[key]}
    for key in ("sender", "kind"):
        found[key] = "".join(filter(str.isprintable, found.get(key, "")))[:MAX_CLAIM]
    return found


def _unpack_halves(frame: bytes, end: int) -> tuple[Head, Tail]:
    """As :func:`unpack`, for a header whose first five entries are the head, ``end`` bytes long."""
    head = _known_head(frame[1:end])
    count = _TAIL_COUNTS.get(frame[0])
    if count is None:
        raise WireError("bad_header", "not a head and a tail")
    entries = _unpack(count + frame[end:])
    # Without other keys, none can be in the head as well.
    if len(entries) != len(_TAIL_TYPES) and "repeat" not in entries:
        raise WireError("bad_header", "not a head and a tail")
    return head, _tail(entries, head)


@lru_cache(_HEADS)
def _known_head(packed: bytes) -> Head:
    entries = _unpack(bytes((_MAP + len(_HEAD_TYPES),)) + packed)
    if entries.keys() != _HEAD_TYPES.keys():
        raise WireError("bad_header", "not a head")
    return _head(entries)


def _unpack(packed: bytes) -> Any:
    try:
        return msgpack.unpackb(
            packed,
            raw=False,
            strict_map_key=False,  # the hook is stricter
            object_pairs_hook=_unique_map,
            ext_hook=_refuse_ext,
            max_array_len=MAX_ENTRIES,
            max_map_len=MAX_ENTRIES,
            max_ext_len=0,  # timestamps never reach the hook
        )
    except WireError:
        raise
    except Exception as error:  # untrusted bytes can make the parser raise anything
        reason = "ext_type" if "max_ext_len" in str(error) else "bad_header"
        raise WireError(reason, f"{type(error).__name__}: {error}"[:200]) from error


def _unique_map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    try:
        result = dict(pairs)
        "".join(result)  # the fastest check that every key is a string
    except TypeError:
        raise WireError("non_string_key", "a map of the header has a key that is not a string") from None
    if len(result) != len(pairs):
        raise WireError("duplicate_key", "a map of the header names a key twice")
    return result


def _refuse_ext(code: int, data: bytes) -> Any:
    raise WireError("ext_type", f"msgpack extension {code} in the header")


def _head(entries: Mapping[str, Any]) -> Head:
    """The head in the entries of a header, checked."""
    version = entries.get("protocol")
    if version != PROTOCOL_VERSION and type(version) is int:
        raise WireError("unknown_version", f"protocol {version}, this end speaks {PROTOCOL_VERSION}")
    _check_types(entries, _HEAD_TYPES)
    kind, incarnation, described = entries["kind"], entries["incarnation"], entries["arrays"]
    if (num_bytes := len(entries["sender"].encode())) > MAX_SENDER_BYTES:
        raise WireError("wrong_key_type", f"'sender' has {num_bytes} bytes, at most {MAX_SENDER_BYTES}")
    if not 0 <= incarnation < MAX_COUNT:
        raise WireError("wrong_key_type", "'incarnation' is outside [0, 2**53)")
    spec = KINDS.get(kind)
    if spec is None:
        raise WireError("unknown_kind", f"{kind[:40]!r} is none of {', '.join(KINDS)}")
    if len(described) > MAX_ARRAYS:
        raise WireError("too_many_arrays", f"{len(described)} arrays, at most {MAX_ARRAYS}")
    arrays = tuple(_array_head(entry) for entry in described)
    if len({array.name for array in arrays}) != len(arrays):
        raise WireError("duplicate_array", "two arrays have the same name")
    total = sum(array.num_bytes for array in arrays)
    if total > MAX_MESSAGE_BYTES:
        raise WireError("oversize_message", f"{total} bytes in one message, at most {MAX_MESSAGE_BYTES}")
    check_arrays(kind, spec, {array.name: (array.dtype.name, len(array.shape)) for array in arrays})
    return Head(kind, entries["sender"], incarnation, arrays, spec)


def _tail(entries: Mapping[str, Any], head: Head) -> Tail:
    """The tail in the entries of a header, checked."""
    sequence, fields = entries.get("sequence"), entries.get("fields")
    if type(sequence) is not int or type(fields) is not dict:
        _check_types(entries, _TAIL_TYPES)
        raise AssertionError("one of the two was of a wrong type")
    if not 0 <= sequence < MAX_COUNT:
        raise WireError("wrong_key_type", "'sequence' is outside [0, 2**53)")
    check_fields(head.kind, head.spec, fields)
    return Tail(sequence, fields, entries.get("repeat") is True)


def _check_types(entries: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, wanted in types.items():
        if key not in entries:
            raise WireError("missing_key", f"the header has no {key!r}")
        if type(entries[key]) is not wanted:
            found = f"{key!r} is {entries[key]!r:.40}"
            raise WireError("wrong_key_type", f"{found}, not a {wanted.__name__}")


def _array_head(entry: Any) -> ArrayHead:
    """One entry of ``arrays`` in the header, checked; its frame is compared with it later."""
    types = [type(part) for part in entry] if type(entry) is list else []
    if types not in ([str, str, list], [str, str, tuple]):
        raise WireError("bad_array_entry", f"{entry!r:.60} is not [name, dtype, shape]")
    name, dtype_name, shape = entry
    dtype = DTYPES.get(dtype_name)
    if dtype is None:
        reason = "object_dtype" if dtype_name.lstrip("|<>=") in ("O", "object") else "unknown_dtype"
        raise WireError(reason, f"array {name[:40]!r} claims dtype {dtype_name[:40]!r}")
    if len(shape) > MAX_RANK:
        raise WireError("wrong_rank", f"array {name[:40]!r} has rank {len(shape)}, at most {MAX_RANK}")
    for size in shape:
        if type(size) is not int or not 0 <= size <= MAX_FRAME_BYTES:
            raise WireError("bad_shape", f"array {name[:40]!r} has a dimension {size!r:.40}")
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes > MAX_FRAME_BYTES:
        raise WireError("oversize_frame", f"{name[:40]!r} has {num_bytes} bytes, at most {MAX_FRAME_BYTES}")
    return ArrayHead(name, dtype, tuple(shape), num_bytes)
