"""Recordings: what they hold, how another program reads them, and what is left of a broken one."""

import errno
import json
import logging
import os
import struct
from functools import partial

import numpy as np
import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.wire import decode
from spreeze_zmq.wire.channels import Publisher, Puller, Pusher, RecordingReader, RecordingWriter, Subscriber
from spreeze_zmq.wire.channels.recording import MOST_FILES
from tests.unit.wire.channels.conftest import TIMEOUT_S, weights

ABOUT = {"name": "sampler-0", "role": "sampler", "index": 0, "channels": ["channel", "other"], "plan": {}}
FRAMES = [[b"header", b""], [b"x" * 300], [b"h", b"a" * 7, b"b" * 1000]]


def written(folder, frames=FRAMES, limit_mb=1.0):
    """The path of a recording with these messages, received and sent in turn."""
    writer = RecordingWriter(folder, ABOUT, limit_mb)
    for number, message in enumerate(frames):
        writer.add("other" if number % 2 else "channel", number % 2 == 1, message)
    writer.close()
    return writer.path


def test_it_reads_as_the_documentation_says(tmp_path):
    """Magic, header in JSON, entries: read here with nothing but struct and json."""
    data = written(tmp_path).read_bytes()
    magic, data = data[:20], data[20:]
    assert magic == b"spreeze recording 1\n"
    (size,) = struct.unpack("<I", data[:4])
    about, data = json.loads(data[4 : 4 + size]), data[4 + size :]
    assert {name: about[name] for name in ABOUT} == ABOUT
    found, last_ns = [], 0
    while data:
        rest, t_ns, sent, channel, count = struct.unpack("<QQBBH", data[:20])
        sizes = struct.unpack(f"<{count}I", data[20 : 20 + 4 * count])
        at, frames = 20 + 4 * count, []
        for size in sizes:
            frames.append(data[at : at + size])
            at += size
        assert at == rest + 8
        assert t_ns >= last_ns
        found.append((about["channels"][channel], sent, frames))
        data, last_ns = data[at:], t_ns
    assert found == [("channel", 0, FRAMES[0]), ("other", 1, FRAMES[1]), ("channel", 0, FRAMES[2])]


def test_a_torn_end_is_left_out_wherever_it_is_torn(tmp_path):
    """A process that is killed while it writes loses that message and no other."""
    path = written(tmp_path)
    whole = path.read_bytes()
    last = 20 + 4 * 3 + 1 + 7 + 1000
    for cut in (*range(1, 60), *range(60, last, 97), *range(last - 60, last)):
        path.write_bytes(whole[:-cut])
        torn = RecordingReader(path)
        assert [entry.frames for entry in torn.entries()] == FRAMES[:2]
        assert torn.torn_bytes == last - cut
    path.write_bytes(whole[:-last])
    clean = RecordingReader(path)
    assert len(list(clean.entries())) == 2
    assert clean.torn_bytes == 0


def test_a_full_disk_ends_it_and_is_said_once(tmp_path, monkeypatch):
    """What was written before it can be read; the process goes on."""
    writer = RecordingWriter(tmp_path, ABOUT, 1.0)
    writer.add("channel", True, FRAMES[0])
    assert writer.ended == ""

    def full(descriptor, parts):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "writev", full)
        writer.add("channel", True, FRAMES[1])
    said = f"{writer.path}: No space left on device: what comes from now on is not recorded"
    assert writer.ended == said
    writer.add("channel", True, FRAMES[2])
    writer.close()
    assert [entry.frames for entry in RecordingReader(writer.path).entries()] == [FRAMES[0]]


def test_a_limit_holds_and_is_said_once(tmp_path, caplog):
    """The file keeps its beginning, without which nothing can be replayed."""
    with caplog.at_level(logging.WARNING):
        path = written(tmp_path, [[bytes(900)]] * 20, limit_mb=0.005)
    assert 3500 < path.stat().st_size <= 5000
    assert 3 <= len(list(RecordingReader(path).entries())) < 6
    assert len(caplog.records) == 1
    assert "--record-mb 0.005 is reached" in caplog.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"x" + data[1:], "is no recording"),
        (lambda data: data[:22], "header is damaged"),
        (lambda data: data[:30] + b"\0" + data[31:], "header is damaged"),
        (lambda data: data[: len(data) - 1339 - 4] + b"\xff" + data[len(data) - 1339 - 3 :], "is damaged"),
        (lambda data: b"", "is no recording"),
    ],
)
def test_a_damaged_one_is_refused_in_a_line(tmp_path, change, said):
    """Whatever the bytes are, the message names the file."""
    path = written(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=said) as caught:
        list(RecordingReader(path).entries())
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_each_life_has_a_file_of_its_own(tmp_path):
    """A restarted process does not write into the recording of the one that died."""
    assert [written(tmp_path).name for _ in range(3)] == [
        *("sampler-0.recording", "sampler-0-2.recording", "sampler-0-3.recording"),
    ]


def test_of_very_many_lives_the_first_and_the_newest_are_kept(tmp_path):
    """A process that crashes for a week does not fill the disk; another one's are its own."""
    other = RecordingWriter(tmp_path, {**ABOUT, "name": "sampler-1"}, 1.0)
    other.close()
    names = [written(tmp_path).name for _ in range(3 * MOST_FILES)]
    kept = {path.name for path in tmp_path.iterdir()} - {other.path.name}
    assert kept == {names[0], *names[1 - MOST_FILES :]}
    assert len({*names}) == len(names)


def test_channels_record_what_passes_them(bench, tmp_path):
    """Received messages, refused ones among them, and sent ones, in the order of the process."""
    pusher, puller = bench.pair(kinds=["critic"])
    publisher, _ = bench.audience(channel="other", kinds=["critic"])
    writer = RecordingWriter(tmp_path, ABOUT, 10.0)
    puller.record, publisher.record = partial(writer.add, "channel"), partial(writer.add, "other")
    assert pusher.push(weights(1), TIMEOUT_S)
    assert puller.pull(TIMEOUT_S).fields["version"] == 1
    publisher.publish(weights(2, num_bytes=1 << 20, value=0.5))
    pusher.socket.send_multipart([b"garbage"])
    assert pusher.push(weights(3), TIMEOUT_S)
    bench.arrived(puller)
    while (message := puller.pull(TIMEOUT_S)).fields["version"] != 3:
        pass
    entries = list(RecordingReader(writer.path).entries())
    assert [(entry.channel, entry.sent) for entry in entries] == [
        *(("channel", False), ("other", True), ("channel", False), ("channel", False)),
    ]
    assert entries[2].frames == [b"garbage"]
    sent = decode(entries[1].frames)
    assert sent.sender == "peer-0"
    np.testing.assert_array_equal(sent.arrays["parameters"], np.full(1 << 18, 0.5, np.float32))
    assert decode(entries[3].frames).fields == message.fields


def test_frames_are_forwarded_as_they_are(bench):
    """With the origin of who made them, and at a full queue not at all, instead of being dropped."""
    publisher, subscriber = bench.audience(high_water_mark=2)
    publisher.lose_nothing()
    assert publisher.subscriptions >= 1
    frames = []
    publisher.record = lambda sent, given: frames.append([bytes(frame) for frame in given])
    publisher.publish(weights(5))
    publisher.record = None
    bench.arrived(subscriber)
    assert subscriber.receive().fields["version"] == 5
    from_elsewhere = bench.open(Pusher, channel="elsewhere", sender="sampler-9", incarnation=7)
    there = bench.open(Puller, channel="elsewhere")
    assert from_elsewhere.forward(frames[0])
    assert there.pull(TIMEOUT_S).sender == "peer-0"
    count = 0
    while publisher.forward([bytes(1 << 16)]) and count < 10_000:
        count += 1
    assert count < 10_000
    assert isinstance(subscriber, Subscriber)
    assert isinstance(publisher, Publisher)
