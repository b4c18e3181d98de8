"""The bytes on the wire are a contract: they change only with PROTOCOL.md and these files."""

import json
import re

import numpy as np
import pytest
from golden_messages import FOLDER, MESSAGES, REFUSED, refused_files, to_file

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.provenance import OURS, installed
from spreeze_zmq.wire import KINDS, decode, encode


def golden(name):
    """The content of one file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_every_kind_has_a_golden_vector():
    """No kind goes unpinned, and no file outlives its message."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MESSAGES)
    assert {message.kind for message in MESSAGES.values()} == set(KINDS) <= set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_encoding_gives_the_golden_bytes(name):
    """The frames of the known message, byte for byte."""
    assert [bytes(frame).hex() for frame in encode(MESSAGES[name])] == golden(name)["frames"]


@pytest.mark.parametrize("name", MESSAGES)
def test_decoding_the_golden_bytes_gives_the_message(name):
    """Header, fields and arrays come back as they are written down beside the frames."""
    content = golden(name)
    message = decode([bytes.fromhex(frame) for frame in content["frames"]])
    assert (message.kind, message.sender, message.incarnation, message.sequence) == (
        MESSAGES[name].kind,
        content["sender"],
        content["incarnation"],
        content["sequence"],
    )
    assert message.fields == content["fields"] == MESSAGES[name].fields
    assert list(message.arrays) == list(content["arrays"]) == list(MESSAGES[name].arrays)
    for key, array in message.arrays.items():
        assert array.dtype.name == content["arrays"][key]["dtype"]
        assert array.tolist() == content["arrays"][key]["values"]
        np.testing.assert_array_equal(array, MESSAGES[name].arrays[key])


@pytest.mark.parametrize("name", MESSAGES)
def test_the_words_beside_the_bytes_are_true(name):
    """A reader in another language can trust the decoded values in the file."""
    frames = [bytes.fromhex(frame) for frame in golden(name)["frames"]]
    assert to_file(frames) == (FOLDER / f"{name}.json").read_text()


def test_the_golden_machine_that_joins_has_this_library_with_a_digest():
    """As each machine says it, and the head asks for it."""
    form = r"\d+\.\d+\.\d+\+[0-9a-f]{12}"
    assert re.fullmatch(form, installed()[OURS])
    assert re.fullmatch(form, MESSAGES["join"].fields["packages"][OURS])


@pytest.mark.parametrize("word", sorted(path.stem for path in REFUSED.glob("*.json")))
def test_a_golden_mistake_is_refused_by_its_word(word):
    """From the bytes in the file, which are those that are made today."""
    text = (REFUSED / f"{word}.json").read_text()
    with pytest.raises(WireError) as refusal:
        decode([bytes.fromhex(frame) for frame in json.loads(text)["frames"]])
    assert refusal.value.reason == word
    assert refused_files()[word] == text
