"""Messages to frames and back: nothing is copied without need, and the malformed is refused by name."""

import struct

import msgpack
import numpy as np
import pytest

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire import MAX_FRAME_BYTES, Message, decode, encode
from spreeze_zmq.wire.header import DTYPES, MAX_ARRAYS, MAX_HEADER_BYTES

ENTRY = ["parameters", "float32", [3]]
BODY = np.array([0.5, -0.5, 1.5], np.float32).tobytes()
HEADER = {
    "protocol": 1,
    "kind": "critic",
    "sender": "critic_learner-0",
    "incarnation": 7,
    "sequence": 3,
    "fields": {"version": 1, "critic_updates": 2, "env_steps": 3},
    "arrays": [ENTRY],
}


def packed(**changes):
    """The good header with some keys changed; ``None`` removes one."""
    header = {**HEADER, **changes}
    return msgpack.packb({key: value for key, value in header.items() if value is not None})


def refusal(frames):
    """The reason for which the frames are refused."""
    with pytest.raises(WireError) as refused:
        decode(frames)
    assert "\n" not in str(refused.value)
    return refused.value.reason


def status(**arrays):
    """A message that may carry any array."""
    return Message("status", {}, arrays)


def travel(message):
    """What the receiver makes of it."""
    return decode([bytes(frame) for frame in encode(message)])


def test_the_frames_that_the_refusals_start_from_are_good():
    """Every refusal below has exactly one thing wrong."""
    message = decode([packed(), BODY])
    assert message.arrays["parameters"].tolist() == [0.5, -0.5, 1.5]
    assert message.sender == "critic_learner-0"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_rank_travels(dtype):
    """Scalars, empty arrays and eight dimensions too."""
    for shape in [(), (0,), (3,), (2, 0, 3), (2, 3), (1,) * 8]:
        array = np.ones(shape, dtype)
        back = travel(status(x=array)).arrays["x"]
        np.testing.assert_array_equal(back, array, strict=True)


def test_contiguous_arrays_are_not_copied():
    """The frame of a C-contiguous little-endian array is its memory."""
    array = np.zeros((3, 4), np.float32)
    frame = encode(status(x=array))[1]
    array[2, 3] = 5.0
    assert np.frombuffer(frame, np.float32)[-1] == 5.0


@pytest.mark.parametrize(
    "array",
    [np.arange(12.0).reshape(3, 4).T, np.arange(12.0)[::2], np.arange(3, dtype=">f8"), np.arange(3)[::-1]],
    ids=["transposed", "strided", "big-endian", "reversed"],
)
def test_other_layouts_are_copied_into_the_one_that_travels(array):
    """Values and shape come through; the byte order on the wire is little-endian."""
    back = travel(status(x=array)).arrays["x"]
    assert back.tolist() == array.tolist()
    assert back.dtype.newbyteorder("<") == back.dtype


def test_decoded_arrays_are_read_only_views_of_their_frame():
    """Nobody writes into a received message, and nothing was copied to make it."""
    frame = bytearray(BODY)
    array = decode([packed(), frame]).arrays["parameters"]
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
    frame[:4] = struct.pack("<f", 9.0)
    assert array[0] == 9.0


def test_misaligned_frames_give_aligned_arrays():
    """ZeroMQ packs small frames at any address; arithmetic wants an aligned one."""
    memory = memoryview(bytearray(1 + len(BODY)))
    memory[1:] = BODY
    array = decode([packed(), memory[1:]]).arrays["parameters"]
    assert array.flags.aligned
    assert array.tolist() == [0.5, -0.5, 1.5]


def test_numpy_scalars_become_plain_numbers():
    """A mean is a np.float32 more often than not."""
    message = travel(
        Message("status", {"mean": np.float32(0.5), "count": np.int64(3), "good": np.bool_(True)})
    )
    assert message.fields == {"mean": 0.5, "count": 3, "good": True}


def test_nan_and_infinity_travel():
    """A diverging loss must still be reported."""
    fields = travel(Message("status", {"loss": float("nan"), "bound": float("inf")})).fields
    assert np.isnan(fields["loss"])
    assert fields["bound"] == float("inf")


def test_a_repeated_message_says_so():
    """Late joiners' copies are marked; all others leave the key out."""
    assert travel(Message("stop", {"roles": [], "reason": ""}, repeat=True)).repeat
    assert not travel(Message("stop", {"roles": [], "reason": ""})).repeat
    assert b"repeat" not in encode(Message("stop", {"roles": [], "reason": ""}))[0]


def test_unknown_fields_arrays_and_header_keys_are_let_through():
    """A newer sender of the same protocol can add some."""
    header = packed(
        fields={**HEADER["fields"], "novelty": [1]}, arrays=[ENTRY, ["more", "int8", [2]]], colour="red"
    )
    message = decode([header, BODY, b"ab"])
    assert message.fields["novelty"] == [1]
    assert message.arrays["more"].tolist() == [97, 98]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "missing_frames"),
        ([b""], "bad_header"),
        ([b"\xc1"], "bad_header"),
        ([packed()[:-1], BODY], "bad_header"),
        ([packed() + b"\x00", BODY], "bad_header"),
        ([msgpack.packb([1, 2])], "header_not_map"),
        ([msgpack.packb(None)], "header_not_map"),
        ([packed(protocol=2), BODY], "unknown_version"),
        ([packed(protocol=0), BODY], "unknown_version"),
        ([packed(protocol="1"), BODY], "wrong_key_type"),
        ([packed(protocol=True), BODY], "wrong_key_type"),
        ([packed(protocol=1.0), BODY], "wrong_key_type"),
        *(([packed(**{key: None}), BODY], "missing_key") for key in HEADER),
        ([packed(kind=7), BODY], "wrong_key_type"),
        ([packed(kind="crtic"), BODY], "unknown_kind"),
        ([packed(sender=b"x"), BODY], "wrong_key_type"),
        ([packed(sender="x" * 65), BODY], "wrong_key_type"),
        ([packed(sender="é" * 33), BODY], "wrong_key_type"),
        ([packed(incarnation=-1), BODY], "wrong_key_type"),
        ([packed(incarnation=2**53), BODY], "wrong_key_type"),
        ([packed(sequence=2**63), BODY], "wrong_key_type"),
        ([packed(sequence=1.5), BODY], "wrong_key_type"),
        ([packed(fields=[]), BODY], "wrong_key_type"),
        ([packed(arrays={}), BODY], "wrong_key_type"),
        ([packed(fields={**HEADER["fields"], 3: 4}), BODY], "non_string_key"),
        ([packed(fields={**HEADER["fields"], b"key": 4}), BODY], "non_string_key"),
        ([b"\x82\xa1a\x01\xa1a\x02"], "duplicate_key"),
        ([packed(fields={"x": msgpack.ExtType(5, b"abc")}), BODY], "ext_type"),
        ([packed(fields={"x": msgpack.ExtType(5, b"")}), BODY], "ext_type"),
        ([packed(fields={"x": msgpack.Timestamp(0, 0)}), BODY], "ext_type"),
        ([packed(fields={"x": "y" * MAX_HEADER_BYTES}), BODY], "oversize_header"),
        ([packed(fields={"x": [0] * 5000}), BODY], "bad_header"),
        ([b"\xdd\xff\xff\xff\xff"], "bad_header"),
        ([b"\x91" * 5000], "bad_header"),
        ([packed(kind="status", arrays=[]), BODY], "extra_frames"),
        ([packed()], "missing_frames"),
        ([packed(), BODY, BODY], "extra_frames"),
        ([packed(arrays=[ENTRY, ENTRY]), BODY, BODY], "duplicate_array"),
        ([packed(), *[BODY] * (MAX_ARRAYS + 1)], "too_many_arrays"),
        ([packed(), BODY[:-1]], "wrong_bytes"),
        ([packed(), BODY + b"\x00"], "wrong_bytes"),
        ([packed(), b""], "wrong_bytes"),
    ],
)
def test_malformed_messages_are_refused(frames, reason):
    """Each with a stable word to count by and one line to read."""
    assert refusal(frames) == reason


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("parameters", "bad_array_entry"),
        (["parameters", "float32"], "bad_array_entry"),
        (["parameters", "float32", [3], 1], "bad_array_entry"),
        ([1, "float32", [3]], "bad_array_entry"),
        (["parameters", 4, [3]], "bad_array_entry"),
        (["parameters", "float32", 3], "bad_array_entry"),
        (["parameters", "bfloat16", [3]], "unknown_dtype"),
        (["parameters", "complex64", [3]], "unknown_dtype"),
        (["parameters", "<f4", [3]], "unknown_dtype"),
        (["parameters", "object", [3]], "object_dtype"),
        (["parameters", "|O", [3]], "object_dtype"),
        (["parameters", "float32", [-3]], "bad_shape"),
        (["parameters", "float32", [3.0]], "bad_shape"),
        (["parameters", "float32", [True, 3]], "bad_shape"),
        (["parameters", "float32", ["3"]], "bad_shape"),
        (["parameters", "float32", [2**62]], "bad_shape"),
        (["parameters", "float32", [2**20, 2**20, 2**20]], "oversize_frame"),
        (["parameters", "float32", [1] * 9], "wrong_rank"),
        (["parameters", "float32", [1, 3]], "wrong_rank"),
        (["parameters", "float32", []], "wrong_rank"),
        (["parameters", "float32", [4]], "wrong_bytes"),
        (["parameters", "int32", [3]], "wrong_dtype"),
        (["something", "float32", [3]], "missing_array"),
    ],
)
def test_wrongly_described_arrays_are_refused(entry, reason):
    """Before any memory is touched: dtype, rank and size are checked against the frame."""
    assert refusal([packed(arrays=[entry]), BODY]) == reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"version": 1, "critic_updates": 2}, "missing_field"),
        ({"version": -1, "critic_updates": 2, "env_steps": 3}, "wrong_field_type"),
        ({"version": 1.0, "critic_updates": 2, "env_steps": 3}, "wrong_field_type"),
        ({"version": True, "critic_updates": 2, "env_steps": 3}, "wrong_field_type"),
        ({"version": 2**53, "critic_updates": 2, "env_steps": 3}, "wrong_field_type"),
    ],
)
def test_wrong_fields_are_refused(fields, reason):
    """What a kind must carry it carries, of its type."""
    assert refusal([packed(fields=fields), BODY]) == reason


def test_oversize_frames_are_refused_by_size_alone():
    """A frame over the cap, and a message over the sum; the memory behind them is never read."""
    frame = memoryview(np.zeros(MAX_FRAME_BYTES + 4, np.uint8))
    too_large = ["parameters", "float32", [MAX_FRAME_BYTES // 4 + 1]]
    assert refusal([packed(arrays=[too_large]), frame]) == "oversize_frame"
    three = [[name, "uint8", [MAX_FRAME_BYTES]] for name in "abc"]
    assert refusal([packed(arrays=three), *[frame[:MAX_FRAME_BYTES]] * 3]) == "oversize_message"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (status(x=np.array([{}], object)), "object_dtype"),
        (status(x=np.zeros(2, np.complex64)), "unknown_dtype"),
        (status(x=np.array(["a"])), "unknown_dtype"),
        (status(x=np.zeros(2, "f4,f4")), "unknown_dtype"),
        (status(x=np.zeros(2, "datetime64[s]")), "unknown_dtype"),
        (status(x=[1.0, 2.0]), "not_an_array"),
        (status(x=np.zeros((1,) * 9)), "wrong_rank"),
        (status(x=np.broadcast_to(np.float32(0), (MAX_FRAME_BYTES,))), "oversize_frame"),
        (status(**{f"x{i}": np.zeros(1) for i in range(MAX_ARRAYS + 1)}), "too_many_arrays"),
        (Message("status", {"x": object()}), "bad_header"),
        (Message("status", {"x": 2**64}), "bad_header"),
        (Message("status", {"x": "y" * MAX_HEADER_BYTES}), "oversize_header"),
        (Message("stats"), "unknown_kind"),
        (Message("stop"), "missing_field"),
        (Message("stop", {"roles": 1, "reason": ""}), "wrong_field_type"),
        (Message("critic", HEADER["fields"]), "missing_array"),
        (Message("critic", HEADER["fields"], {"parameters": np.zeros((3, 1), np.float32)}), "wrong_rank"),
        (Message("critic", HEADER["fields"], {"parameters": np.zeros(3)}), "wrong_dtype"),
    ],
)
def test_the_sender_refuses_what_the_receiver_would(message, reason):
    """A mistake shows where it was made."""
    with pytest.raises(WireError) as refused:
        encode(message)
    assert refused.value.reason == reason


def test_pairs_of_arrays_must_match():
    """Bounds, observation statistics and episodes come in pairs of one shape, and so does an average."""
    policy = Message(
        "policy",
        {"version": 1, "critic_updates": 1, "actor_updates": 1, "description": {}, "extras": {}},
        {"parameters": np.zeros(3, np.float32), "action_low": np.zeros(2, np.float32)},
    )
    three = {**policy.arrays, "action_high": np.zeros(3, np.float32)}
    average = {"parameters": np.zeros(3, np.float32), "average": np.zeros(2, np.float32)}
    odd = {"returns": np.zeros(2, np.float32), "lengths": np.zeros(3, np.int32)}
    cases = [(policy, "missing_array"), (policy._replace(arrays=three), "wrong_shape")]
    cases += [(policy._replace(arrays=average), "wrong_shape")]
    for message, reason in [*cases, (Message("episodes", {}, odd), "wrong_shape")]:
        with pytest.raises(WireError) as refused:
            encode(message)
        assert refused.value.reason == reason
