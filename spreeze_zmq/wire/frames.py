"""Encodes a message to its frames and back: a msgpack header, then one raw little-endian frame per array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.rollout import ARRAY_FIELDS, Rollout
from spreeze_zmq.wire.fields import dtype_name
from spreeze_zmq.wire.header import (
    DTYPES,
    MAX_ARRAYS,
    MAX_FRAME_BYTES,
    Described,
    Head,
    Tail,
    claimed,
    pack,
    unpack,
)

Buffer = bytes | bytearray | memoryview

_NONE: Mapping[str, Any] = MappingProxyType({})


class Message(NamedTuple):
    """One message, as both ends see it.

    Attributes:
        kind: a key of :data:`spreeze_zmq.wire.KINDS`.
        fields: plain values (None, bool, int, float, str, lists and string-keyed dicts of them).
        arrays: by name; a decoded message has read-only views of the frames, which they keep alive.
        sender: name of the sending process, such as ``"sampler-0"``; a channel fills it in.
        incarnation: numbers the starts of that process, 1 <= incarnation < 2**53.
        sequence: counts the messages of this incarnation on this channel from 0.
        repeat: the message was published before; subscribers that have it skip it.
    """

    kind: str
    fields: Mapping[str, Any] = _NONE
    arrays: Mapping[str, NDArray[Any]] = _NONE
    sender: str = ""
    incarnation: int = 0
    sequence: int = 0
    repeat: bool = False


def encode(message: Message) -> list[Buffer]:
    """The frames of ``message``; the frame of a C-contiguous little-endian array is a view of it, not a copy.

    Raises:
        WireError: a receiver would refuse the message: its kind is unknown, a required field or array is
            missing, an array has a dtype that cannot travel, or the message is too large.
    """
    return encode_from(message, message.sender, message.incarnation, message.sequence)


def encode_from(message: Message, sender: str, incarnation: int, sequence: int) -> list[Buffer]:
    """As :func:`encode`, with another sender, incarnation and sequence."""
    arrays = message.arrays
    described: list[Described] = []
    frames: list[Buffer] = [b""]
    for name, given in arrays.items():
        dtype, array = _travelling(name, given)
        described.append((name, dtype, array.shape))
        # A memoryview cannot be cast where a dimension is 0, so an empty array becomes an empty frame.
        frames.append(array.data.cast("B") if array.size else b"")
    tail = Tail(sequence, dict(message.fields), message.repeat)
    frames[0], spec = pack(message.kind, sender, incarnation, tuple(described), tail)
    if spec.cross_check is not None:
        spec.cross_check(message.fields, arrays)
    return frames


def _travelling(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """The name of its dtype, and ``array`` itself or, unless contiguous and little-endian, a copy that is."""
    if not isinstance(array, np.ndarray):
        raise WireError("not_an_array", f"{name!r} is a {type(array).__name__}, expected a numpy array")
    dtype = dtype_name(array)
    if dtype is None:
        reason = "object_dtype" if array.dtype.hasobject else "unknown_dtype"
        raise WireError(reason, f"array {name!r} is {array.dtype}, only {', '.join(DTYPES)} travel")
    if array.flags.c_contiguous and array.dtype == DTYPES[dtype]:
        return dtype, array
    if array.nbytes > MAX_FRAME_BYTES:  # before copying it
        raise WireError("oversize_frame", f"{name!r} has {array.nbytes} bytes, at most {MAX_FRAME_BYTES}")
    return dtype, array.astype(DTYPES[dtype], order="C")


def decode(frames: Sequence[Buffer]) -> Message:
    """The message in ``frames``; its arrays are read-only views of them.

    A frame is copied only where its address is not aligned for its dtype (ZeroMQ packs small ones tightly).

    Raises:
        WireError: for any bytes that are not a valid message, with a stable ``reason``.
    """
    if not frames:
        raise WireError("missing_frames", "a message without a header")
    if len(frames) > MAX_ARRAYS + 1:
        raise WireError("too_many_arrays", f"{len(frames) - 1} array frames, at most {MAX_ARRAYS}")
    header = frames[0]
    head, tail = unpack(header if type(header) is bytes else bytes(header))
    arrays = _arrays(head, frames)
    if head.spec.cross_check is not None:
        head.spec.cross_check(tail.fields, arrays)
    return Message(head.kind, tail.fields, arrays, head.sender, head.incarnation, tail.sequence, tail.repeat)


def claims_of(frames: Sequence[Buffer]) -> Message:
    """The unverified origin and fields of a message that ``decode`` refuses; no arrays."""
    found = claimed(bytes(frames[0])) if frames else {}
    return Message(
        found.get("kind", ""),
        found.get("fields", _NONE),
        sender=found.get("sender", ""),
        incarnation=found.get("incarnation", 0),
        sequence=found.get("sequence", 0),
    )


def _arrays(head: Head, frames: Sequence[Buffer]) -> dict[str, NDArray[Any]]:
    """The arrays that the head describes, as views of their frames."""
    num_frames = len(frames) - 1
    if num_frames < len(head.arrays):
        raise WireError("missing_frames", f"{num_frames} of {len(head.arrays)} array frames came")
    if num_frames > len(head.arrays):
        raise WireError("extra_frames", f"{num_frames} array frames for {len(head.arrays)} arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for (name, dtype, shape, num_bytes), frame in zip(head.arrays, frames[1:], strict=True):
        if len(frame) != num_bytes:
            raise WireError("wrong_bytes", f"{name[:40]!r} has {len(frame)} bytes, its shape {num_bytes}")
        array = np.ndarray(shape, dtype, frame)
        flags = array.flags
        if not flags.aligned:
            array = array.copy()
            flags = array.flags
        flags.writeable = False
        arrays[name] = array
    return arrays


def rollout_message(rollout: Rollout, names: Iterable[str] | None = None) -> Message:
    """A message with the arrays of ``rollout`` in ``names``, by default all; none is copied."""
    return Message(
        kind="rollout",
        fields={
            "produced": rollout.produced,
            "policy_version": rollout.policy_version,
            "num_steps": rollout.num_steps,
            "num_envs": rollout.num_envs,
        },
        arrays=rollout.arrays(names),
        sender=rollout.sampler,
        incarnation=rollout.incarnation,
        sequence=rollout.sequence,
    )


def rollout_from(message: Message) -> Rollout:
    """The rollout in a message from ``decode``, which has checked its shapes against ``T`` and ``N``.

    Raises:
        WireError: the message has another kind.
    """
    if message.kind != "rollout":
        raise WireError("wrong_kind", f"a {message.kind} message where a rollout was expected")
    fields = message.fields
    return Rollout(
        sampler=message.sender,
        incarnation=message.incarnation,
        sequence=message.sequence,
        produced=fields["produced"],
        policy_version=fields["policy_version"],
        num_steps=fields["num_steps"],
        num_envs=fields["num_envs"],
        **{name: message.arrays[name] for name in ARRAY_FIELDS if name in message.arrays},
    )


def frozen(frame: Buffer) -> Buffer:
    """``frame`` in memory that does not change while ZeroMQ reads it.

    If NumPy owns the memory, the frame's array and every array that it is a view of become read-only: a later
    write raises ValueError instead of changing a queued message. Other views made before stay writeable.
    Writeable memory of another owner (a torch tensor, a mapped file) is copied.
    """
    array: Any = frame.obj if isinstance(frame, memoryview) else None
    if not isinstance(array, np.ndarray):
        return bytes(frame)
    views: list[Any] = [array]
    while isinstance(base := views[-1].base, np.ndarray):
        views.append(base)
    if base is not None and views[-1].flags.writeable:
        return bytes(frame)
    for view in views:
        view.flags.writeable = False
    return frame
