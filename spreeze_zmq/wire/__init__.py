"""The wire: messages as bytes, versioned and without pickle; it does not know sockets."""

from spreeze_zmq.base.rollout import LARGEST, odd_number
from spreeze_zmq.wire.fields import MAX_COUNT
from spreeze_zmq.wire.frames import (
    Buffer,
    Message,
    claims_of,
    decode,
    encode,
    encode_from,
    frozen,
    rollout_from,
    rollout_message,
)
from spreeze_zmq.wire.header import MAX_ARRAYS, MAX_FRAME_BYTES, PROTOCOL_VERSION, head_of
from spreeze_zmq.wire.kinds import KINDS

__all__ = [
    "KINDS",
    "LARGEST",
    "MAX_ARRAYS",
    "MAX_COUNT",
    "MAX_FRAME_BYTES",
    "PROTOCOL_VERSION",
    "Buffer",
    "Message",
    "claims_of",
    "decode",
    "encode",
    "encode_from",
    "frozen",
    "head_of",
    "odd_number",
    "rollout_from",
    "rollout_message",
]
