"""Invalid messages: one for each word of refusal in PROTOCOL.md, and random mutations of valid ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgpack
import numpy as np

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire import Message, decode, encode

ORIGIN: dict[str, Any] = {"sender": "sampler-0", "incarnation": 123456789, "sequence": 42}
STOP = Message("stop", {"roles": [], "reason": "of a message that is to be refused"}, **ORIGIN)
CRITIC = {"kind": "critic", "fields": {"version": 1, "critic_updates": 1, "env_steps": 1}}
ROLLOUT = Message(
    "rollout",
    {"produced": 4, "policy_version": 3, "num_steps": 2, "num_envs": 2},
    {
        "obs": np.zeros((3, 2, 1), np.float32),
        "action": np.zeros((2, 2, 1), np.float32),
        "reward": np.zeros((2, 2), np.float32),
        "terminated": np.zeros((2, 2), np.bool_),
        "truncated": np.eye(2, dtype=np.bool_),
        "final_obs": np.zeros((2, 1), np.float32),
        "final_index": np.array([[0, 0], [1, 1]], np.int32),
    },
    **ORIGIN,
)


def refused(roles: Sequence[str]) -> dict[str, list[bytes]]:
    """Word of refusal -> frames of a message with that mistake; most would stop these roles if obeyed."""
    stop = STOP._replace(fields={**STOP.fields, "roles": list(roles)}, sequence=42 + len(roles))
    head, rollout = frames_of(stop)[0], frames_of(ROLLOUT)
    longer = bytes((head[0] + 1,)) + head[1:]  # a map of one more entry

    def of(**changes: Any) -> bytes:
        return _header(stop, **changes)

    def with_arrays(*arrays: list[Any]) -> list[bytes]:
        return [of(arrays=list(arrays)), *([b""] * len(arrays))]

    def changed(**arrays: Any) -> list[bytes]:
        return _with(ROLLOUT, {**ROLLOUT.arrays, **arrays})

    return {
        "missing_frames": rollout[:-1],
        "extra_frames": [*rollout, b"1"],
        "oversize_header": [of(fields={**stop.fields, "more": "a" * 70_000})],
        "bad_header": [head[:-3]],
        "ext_type": [longer + msgpack.packb("when") + msgpack.packb(msgpack.ExtType(5, b"1"))],
        "non_string_key": [longer + msgpack.packb(7) + msgpack.packb(1)],
        "duplicate_key": [longer + msgpack.packb("kind") + msgpack.packb("stop")],
        "header_not_map": [msgpack.packb(["stop"])],
        "unknown_version": [of(protocol=2)],
        "missing_key": [of(sequence=None)],
        "wrong_key_type": [of(sequence="42")],
        "too_many_arrays": [head, *([b""] * 65)],
        "bad_array_entry": with_arrays(["a", "float32"]),
        "duplicate_array": with_arrays(["a", "bool", [0]], ["a", "bool", [0]]),
        "unknown_dtype": with_arrays(["a", "complex64", [0]]),
        "object_dtype": with_arrays(["a", "object", [0]]),
        "bad_shape": with_arrays(["a", "bool", [-1]]),
        "wrong_rank": with_arrays(["a", "bool", [0] * 9]),
        "oversize_frame": with_arrays(["a", "float64", [1 << 28]]),
        "oversize_message": with_arrays(*([name, "float32", [1 << 28]] for name in "abc")),
        "wrong_bytes": [*rollout[:-1], rollout[-1][:-1]],
        "unknown_kind": [of(kind="halt")],
        "missing_field": [of(fields={"roles": list(roles)})],
        "wrong_field_type": [of(fields={"roles": "*" if roles else "", "reason": ""})],
        "missing_array": [_header(STOP, **CRITIC)],
        "wrong_dtype": changed(reward=np.zeros((2, 2), np.float64)),
        "wrong_shape": changed(obs=np.zeros((2, 2, 1), np.float32)),
        "bad_flag": changed(terminated=np.array([[2, 0], [0, 0]], np.uint8).view(np.bool_)),
        "not_finite": [_header(STOP, **CRITIC, arrays=[["parameters", "float32", [1]]]), b"\0\0\xc0\x7f"],
        "bad_final_index": changed(final_index=np.array([[1, 1], [0, 0]], np.int32)),
    }


def policies(policy: Message) -> dict[str, list[bytes]]:
    """Word of refusal and what it is about -> frames of a policy that has this mistake and no other."""
    arrays, shape = policy.arrays, policy.fields["description"]["observation"]["shape"]
    still = {"observation_mean": np.zeros(shape, np.float32), "observation_std": np.zeros(shape, np.float32)}
    low = {"action_low": arrays.get("action_low", np.zeros(1, np.float32))}
    one_bound = {name: array for name, array in arrays.items() if name != "action_high"} | low
    return {
        "not_finite parameters": _with(
            policy, {**arrays, "parameters": arrays["parameters"] * np.float32("nan")}
        ),
        "not_finite observation_std": _with(policy, {**arrays, **still}),
        "missing_array action_high": _with(policy, one_bound),
        "wrong_field_type collect_until": _with(policy, arrays, collect_until={"*": "far"}),
    }


def mutations(message: Message, count: int, seed: int = 0) -> Iterator[list[bytes]]:
    """``count`` messages with some bytes changed, cut or added, all of them invalid."""
    random, num = Random(seed), 0
    while num < count:
        frames = [bytearray(frame) for frame in frames_of(message)]
        frame = random.choice(frames)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(frame) + 1)
            frame[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
        try:
            decode([bytes(frame) for frame in frames])
        except WireError:
            num += 1
            yield [bytes(frame) for frame in frames]


def with_key(message: Message) -> list[bytes]:
    """The frames of a message with an unknown key in its header, as of a newer sender."""
    return [_header(message, mood="calm"), *frames_of(message)[1:]]


def frames_of(message: Message) -> list[bytes]:
    """The frames of a message."""
    return [bytes(frame) for frame in encode(message)]


def _header(message: Message, **changes: Any) -> bytes:
    """The packed header of a message with some keys changed; None removes a key."""
    header = {**msgpack.unpackb(frames_of(message)[0]), **changes}
    packed: bytes = msgpack.packb({key: value for key, value in header.items() if value is not None})
    return packed


def _with(message: Message, arrays: Mapping[str, Any], **fields: Any) -> list[bytes]:
    """The frames of a message with other arrays and some fields changed, not validated."""
    described = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    header = _header(message, arrays=described, fields={**message.fields, **fields})
    return [header, *(array.tobytes() for array in arrays.values())]
