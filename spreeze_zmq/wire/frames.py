"""Between a message and its frames: a msgpack header, then one raw little-endian frame for each array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

import msgpack
import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import WireError
from spreeze_zmq.wire.kinds import DTYPE_NAMES, MAX_COUNT, check, dtype_name

PROTOCOL_VERSION = 1
MAX_HEADER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 1 << 30
MAX_MESSAGE_BYTES = 1 << 31
MAX_ARRAYS = 64
MAX_RANK = 8
#: Entries of one list or map in a header: a forged length must not make the reader reserve memory.
MAX_ENTRIES = 4096

Buffer = bytes | bytearray | memoryview

#: The dtypes that may travel, always little-endian and in C order.
DTYPES: dict[str, np.dtype[np.generic]] = {
    name: cast("np.dtype[np.generic]", np.dtype(name).newbyteorder("<")) for name in DTYPE_NAMES
}

_HEADER_KEYS: dict[str, type] = {
    "protocol": int,
    "kind": str,
    "sender": str,
    "incarnation": int,
    "sequence": int,
    "fields": dict,
    "arrays": list,
}
_header_values = itemgetter(*_HEADER_KEYS)
_header_types = list(_HEADER_KEYS.values())


@dataclass(frozen=True)
class Message:
    """One message, as both ends see it.

    Attributes:
        kind: a key of :data:`spreeze_zmq.wire.KINDS`.
        fields: plain values (None, bool, int, float, str, lists and string-keyed dicts of them).
        arrays: by name; where decoded, read-only views of the frames, which they keep alive.
        sender: name of the sending process, such as ``"sampler-0"``; a channel fills it in.
        incarnation: which life of that process, 1 <= incarnation < 2**53.
        sequence: counts the messages of this life on this channel from 0.
        repeat: sent once more for a subscriber that joined late; whoever has it already passes over it.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    sender: str = ""
    incarnation: int = 0
    sequence: int = 0
    repeat: bool = False


def encode(message: Message) -> list[Buffer]:
    """The frames of ``message``. A C-contiguous little-endian array is not copied: its frame is a view of it.

    Raises:
        WireError: the message is not of a known kind, lacks what that kind carries, holds an array of a dtype
            that cannot travel, or is too large; the receiver would refuse it.
    """
    return encode_from(message, message.sender, message.incarnation, message.sequence)


def encode_from(message: Message, sender: str, incarnation: int, sequence: int) -> list[Buffer]:
    """The frames of ``message`` with this origin in place of its own; see :func:`encode`."""
    if len(message.arrays) > MAX_ARRAYS:
        raise WireError("too_many_arrays", f"{len(message.arrays)} arrays, at most {MAX_ARRAYS}")
    described: list[tuple[str, str, tuple[int, ...]]] = []
    frames: list[Buffer] = [b""]
    total = 0
    for name, given in message.arrays.items():
        dtype, array = _travelling(name, given)
        described.append((name, dtype, array.shape))
        # A memoryview cannot be cast where a dimension is 0, so an empty array becomes an empty frame.
        frames.append(array.data.cast("B") if array.nbytes else b"")
        total += array.nbytes
    if total > MAX_MESSAGE_BYTES:
        raise WireError("oversize_message", f"{total} bytes in one message, at most {MAX_MESSAGE_BYTES}")
    check(message.kind, message.fields, message.arrays)
    header = {
        "protocol": PROTOCOL_VERSION,
        "kind": message.kind,
        "sender": sender,
        "incarnation": incarnation,
        "sequence": sequence,
        "fields": message.fields,
        "arrays": described,
    }
    if message.repeat:
        header["repeat"] = True
    frames[0] = _pack(header)
    return frames


def _travelling(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Its dtype's name, and ``array`` itself if its memory is what travels, else a copy that is."""
    if not isinstance(array, np.ndarray):
        raise WireError("not_an_array", f"{name!r} is a {type(array).__name__}, expected a numpy array")
    dtype = dtype_name(array)
    if dtype is None:
        reason = "object_dtype" if array.dtype.hasobject else "unknown_dtype"
        raise WireError(reason, f"array {name!r} is {array.dtype}, only {', '.join(DTYPES)} travel")
    if array.ndim > MAX_RANK:
        raise WireError("wrong_rank", f"array {name!r} has rank {array.ndim}, at most {MAX_RANK}")
    if array.nbytes > MAX_FRAME_BYTES:
        raise WireError("oversize_frame", f"{name!r} has {array.nbytes} bytes, at most {MAX_FRAME_BYTES}")
    if array.flags.c_contiguous and array.dtype == DTYPES[dtype]:
        return dtype, array
    return dtype, array.astype(DTYPES[dtype], order="C")


def _pack(header: dict[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(header, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError("bad_header", f"{header['kind']}: {error}") from error
    if len(packed) > MAX_HEADER_BYTES:
        raise WireError("oversize_header", f"{len(packed)} bytes, at most {MAX_HEADER_BYTES}")
    return packed


def _plain(value: object) -> Any:
    """NumPy's scalars become plain numbers; anything else has no place in a header."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot travel in a header")


def decode(frames: Sequence[Buffer]) -> Message:
    """The message in ``frames``, or WireError with a stable ``reason``, whatever the bytes are.

    The arrays are read-only views of the frames, which stay alive with them; only a frame at an address that
    does not suit its dtype is copied (ZeroMQ packs small ones tightly).
    """
    if not frames:
        raise WireError("missing_frames", "a message without a header")
    if len(frames) > MAX_ARRAYS + 1:
        raise WireError("too_many_arrays", f"{len(frames) - 1} array frames, at most {MAX_ARRAYS}")
    header = _unpack_header(frames[0])
    _, kind, sender, incarnation, sequence, fields, described = _known_values(header)
    arrays = _arrays(described, frames[1:])
    check(kind, fields, arrays)
    return Message(kind, fields, arrays, sender, incarnation, sequence, header.get("repeat") is True)


def _unpack_header(frame: Buffer) -> Any:
    if len(frame) > MAX_HEADER_BYTES:
        raise WireError("oversize_header", f"{len(frame)} bytes, at most {MAX_HEADER_BYTES}")
    try:
        return msgpack.unpackb(
            frame,
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
    except Exception as error:  # whatever a stranger's bytes make the parser raise is the same refusal
        reason = "ext_type" if "max_ext_len" in str(error) else "bad_header"
        raise WireError(reason, f"{type(error).__name__}: {error}"[:200]) from error


def _known_values(header: Any) -> tuple[Any, ...]:
    """The values of the header's keys, each of its type, in the order of ``_HEADER_KEYS``."""
    if not isinstance(header, dict):
        raise WireError("header_not_map", f"the header is a {type(header).__name__}")
    version = header.get("protocol")
    if version != PROTOCOL_VERSION and type(version) is int:
        raise WireError("unknown_version", f"protocol {version}, this end speaks {PROTOCOL_VERSION}")
    try:
        values: tuple[Any, ...] = _header_values(header)
    except KeyError as error:
        raise WireError("missing_key", f"the header has no {error}") from None
    if list(map(type, values)) != _header_types:
        wrong = next(key for key, wanted in _HEADER_KEYS.items() if type(header[key]) is not wanted)
        raise WireError("wrong_key_type", f"{wrong!r} is {header[wrong]!r:.40}, not a {_HEADER_KEYS[wrong]}")
    if not (0 <= header["incarnation"] < MAX_COUNT and 0 <= header["sequence"] < MAX_COUNT):
        raise WireError("wrong_key_type", "'incarnation' or 'sequence' is outside [0, 2**53)")
    return values


def _unique_map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    try:
        result = dict(pairs)
        "".join(result)  # the quickest way to see that every key is a string
    except TypeError:
        raise WireError("non_string_key", "a map of the header has a key that is not a string") from None
    if len(result) != len(pairs):
        raise WireError("duplicate_key", "a map of the header names a key twice")
    return result


def _refuse_ext(code: int, data: bytes) -> Any:
    raise WireError("ext_type", f"msgpack extension {code} in the header")


def _arrays(described: list[Any], frames: Sequence[Buffer]) -> dict[str, NDArray[Any]]:
    """One array for each entry of the header's list and the frame that belongs to it."""
    if len(frames) < len(described):
        raise WireError("missing_frames", f"{len(frames)} of {len(described)} array frames came")
    if len(frames) > len(described):
        raise WireError("extra_frames", f"{len(frames)} array frames for {len(described)} arrays")
    arrays: dict[str, NDArray[Any]] = {}
    total = 0
    for entry, frame in zip(described, frames, strict=True):
        name, dtype, shape = _describe(entry)
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes > MAX_FRAME_BYTES:
            raise WireError(
                "oversize_frame", f"{name[:40]!r} claims {num_bytes} bytes, at most {MAX_FRAME_BYTES}"
            )
        if len(frame) != num_bytes:
            raise WireError("wrong_bytes", f"{name[:40]!r} has {len(frame)} bytes, its shape {num_bytes}")
        if name in arrays:
            raise WireError("duplicate_array", f"array {name[:40]!r} comes twice")
        total += num_bytes
        array = np.frombuffer(frame, dtype)
        flags = array.flags
        if not flags.aligned:
            array = array.copy()
            flags = array.flags
        flags.writeable = False
        arrays[name] = array if len(shape) == 1 else array.reshape(shape)
    if total > MAX_MESSAGE_BYTES:
        raise WireError("oversize_message", f"{total} bytes in one message, at most {MAX_MESSAGE_BYTES}")
    return arrays


def _describe(entry: Any) -> tuple[str, np.dtype[np.generic], list[int]]:
    """Name, dtype and shape of one entry of the header's list, as yet unproven by its frame."""
    if type(entry) is not list or list(map(type, entry)) != [str, str, list]:
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
    return name, dtype, shape
