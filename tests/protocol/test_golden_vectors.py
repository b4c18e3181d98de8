"""The bytes on the wire are a contract: they change only with PROTOCOL.md and these files."""

import json

import numpy as np
import pytest
from golden_messages import FOLDER, MESSAGES, to_file

from spreeze_zmq.wire import KINDS, decode, encode


def golden(kind):
    """The content of one file."""
    return json.loads((FOLDER / f"{kind}.json").read_text())


def test_every_kind_has_a_golden_vector():
    """No kind goes unpinned, and no file outlives its kind."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(KINDS) == set(MESSAGES)


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_gives_the_golden_bytes(kind):
    """The frames of the known message, byte for byte."""
    assert [bytes(frame).hex() for frame in encode(MESSAGES[kind])] == golden(kind)["frames"]


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_the_golden_bytes_gives_the_message(kind):
    """Header, fields and arrays come back as they are written down beside the frames."""
    content = golden(kind)
    message = decode([bytes.fromhex(frame) for frame in content["frames"]])
    assert (message.kind, message.sender, message.incarnation, message.sequence) == (
        kind,
        content["sender"],
        content["incarnation"],
        content["sequence"],
    )
    assert message.fields == content["fields"] == MESSAGES[kind].fields
    assert list(message.arrays) == list(content["arrays"]) == list(MESSAGES[kind].arrays)
    for name, array in message.arrays.items():
        assert array.dtype.name == content["arrays"][name]["dtype"]
        assert array.tolist() == content["arrays"][name]["values"]
        np.testing.assert_array_equal(array, MESSAGES[kind].arrays[name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_beside_the_bytes_are_true(kind):
    """A reader in another language can trust the decoded values in the file."""
    frames = [bytes.fromhex(frame) for frame in golden(kind)["frames"]]
    assert to_file(frames) == (FOLDER / f"{kind}.json").read_text()
