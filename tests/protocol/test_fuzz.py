"""Whatever bytes arrive, decoding gives a message or a refusal; nothing else ever escapes."""

import msgpack
from golden_messages import MESSAGES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.wire import Message, decode, encode

FRAMES = {kind: [bytes(frame) for frame in encode(message)] for kind, message in MESSAGES.items()}
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
THOROUGH = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def survives(frames):
    """The message in the frames is usable, or they are refused with a reason."""
    try:
        message = decode(frames)
    except WireError as error:
        reason = error.reason
    else:
        assert isinstance(message, Message)
        assert [bytes(frame) for frame in encode(message)][1:] == [bytes(frame) for frame in frames[1:]]
        reason = "none"
    assert reason.isidentifier()


@THOROUGH
@given(st.lists(st.binary(max_size=64), max_size=5))
def test_random_bytes_never_crash(frames):
    """Not even one frame of them is a header."""
    survives(frames)


@THOROUGH
@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_flipped_bytes_never_crash(kind, data):
    """Bytes of a good header are replaced, inserted, removed."""
    header = bytearray(FRAMES[kind][0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(header) - 1))
        header[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        header = header or bytearray(b"\x80")
    survives([bytes(header), *FRAMES[kind][1:]])


@THOROUGH
@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_well_formed_nonsense_never_crashes(kind, data):
    """A value somewhere in a good header is exchanged for any other."""
    header = msgpack.unpackb(FRAMES[kind][0])
    place = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(PLAIN)
        break
    survives([msgpack.packb(header), *FRAMES[kind][1:]])


@THOROUGH
@given(st.sampled_from(sorted(FRAMES)), st.data())
def test_shuffled_and_cut_frames_never_crash(kind, data):
    """Frames are lost, doubled, cut and exchanged."""
    frames = data.draw(st.lists(st.sampled_from(FRAMES[kind]), max_size=len(FRAMES[kind]) + 1))
    cut = data.draw(st.integers(0, 3))
    survives([frames[0][cut:], *frames[1:]] if frames else frames)


@THOROUGH
@given(st.dictionaries(st.text(max_size=8), PLAIN, max_size=4))
def test_any_plain_fields_travel_or_are_refused_at_the_sender(fields):
    """What can be sent comes back equal (NaN aside, which equals nothing)."""
    try:
        frames = encode(Message("status", fields))
    except WireError:
        return
    assert repr(dict(decode(frames).fields)) == repr(fields)
