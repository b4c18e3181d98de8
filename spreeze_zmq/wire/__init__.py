"""The wire: messages as bytes, versioned and pickle-free; it knows nothing of sockets."""

from spreeze_zmq.wire.frames import Buffer, Message, decode, encode, encode_from
from spreeze_zmq.wire.header import MAX_FRAME_BYTES, PROTOCOL_VERSION
from spreeze_zmq.wire.kinds import KINDS
from spreeze_zmq.wire.rollouts import rollout_from, rollout_message

__all__ = [
    "KINDS",
    "MAX_FRAME_BYTES",
    "PROTOCOL_VERSION",
    "Buffer",
    "Message",
    "decode",
    "encode",
    "encode_from",
    "rollout_from",
    "rollout_message",
]
