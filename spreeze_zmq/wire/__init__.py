"""The wire: messages as bytes, versioned and pickle-free; it knows nothing of sockets."""

from spreeze_zmq.wire.frames import Buffer, Message, decode, encode, encode_from
from spreeze_zmq.wire.header import (
    DTYPES,
    MAX_ARRAYS,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
)
from spreeze_zmq.wire.kinds import FIELD_TYPES, KINDS, MAX_COUNT, ArraySpec, FieldSpec, KindSpec
from spreeze_zmq.wire.rollouts import rollout_from, rollout_message

__all__ = [
    "DTYPES",
    "FIELD_TYPES",
    "KINDS",
    "MAX_ARRAYS",
    "MAX_COUNT",
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL_VERSION",
    "ArraySpec",
    "Buffer",
    "FieldSpec",
    "KindSpec",
    "Message",
    "decode",
    "encode",
    "encode_from",
    "rollout_from",
    "rollout_message",
]
