"""The channels section of ``spreeze bench``: messages/s between two processes, plain and with keys."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import zmq

from spreeze_zmq.base.endpoints import KEYS_VARIABLE, Keys, read_keys, write_keys
from spreeze_zmq.base.errors import PeerTimeout
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.commands.bench.figures import (
    TURN_S,
    Figure,
    Job,
    Rate,
    Section,
    Way,
    by_clock,
    in_turn,
    paired,
)
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Puller, Pusher, SocketFolder, make_keys

ABOUT = "push to pull between two processes; limit: bare pyzmq over ipc, for keys the channel without"
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 22)
#: Limits of messages queued at each end, the same for both ways: for large messages that of the policy
#: channel (see the table of channels), for small ones that of reports.
MIN_QUEUED, MAX_QUEUED = 4, 1000
MAX_QUEUED_BYTES = 1 << 18
TIMEOUT_S = 10.0
TURN_TIMEOUT_S = 30.0
ROUNDS = 2
FIRST_GUESS_BYTES_PER_S = 1e9
FIRST_GUESS_MESSAGES_PER_S = 30_000


def measure(job: Job) -> Section:
    """Measure messages/s with arrays of each size between two processes, for about ``job.seconds``: over ipc
    bare pyzmq and Pusher to Puller, over tcp on loopback the latter without and with keys. Environment and
    device do not matter.

    Raises:
        PeerTimeout: the sending process did not deliver.
    """
    folder = SocketFolder.create("bench")
    write_keys(make_keys(), keys_file(folder))
    names = {size: f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB" for size in SIZES}
    try:
        each_s = job.seconds / len(SIZES) / 2
        figures = [
            compared(folder, size, each_s, f"{name} {title}", ways)
            for title, ways in (("messages", ("bare", "channel")), ("with keys (tcp)", ("tcp", "curve")))
            for size, name in names.items()
        ]
    finally:
        folder.remove()
    return Section("channels", ABOUT, figures)


def keys_file(folder: SocketFolder) -> Path:
    return folder.path / "keys.json"


def compared(folder: SocketFolder, size: int, seconds: float, name: str, ways: tuple[str, str]) -> Figure:
    """Messages/s of two ways of sending; the first one is the limit."""
    rates = by_clock(in_turn({way: stream(folder, way, size) for way in ways}, seconds, ROUNDS, TURN_S))
    figure = paired(name, "messages/s", rates[ways[0]], rates[ways[1]])
    bare, channel = figure.limit * size / 1e9, figure.reached * size / 1e9
    details = {"message_bytes": size, "limit_gb_per_s": bare, "reached_gb_per_s": channel}
    return replace(figure, note=f"{channel:.2f} of {bare:.2f} GB/s", details=details)


def stream(folder: SocketFolder, way: str, size: int) -> Way:
    """The rate of one way; a turn sends as many messages as its time allows at the rate of the last turn."""
    per_s = min(FIRST_GUESS_BYTES_PER_S / size, FIRST_GUESS_MESSAGES_PER_S)

    def turn(turn_s: float) -> Rate:
        nonlocal per_s
        per_s = send_and_receive(folder, way, size, max(20, int(turn_s * per_s)))
        return Rate(per_s, 0.0)

    return turn


def send_and_receive(folder: SocketFolder, way: str, size: int, num_messages: int) -> float:
    """Messages/s of one stream, from its first message to its last, without the start of its processes."""
    endpoint = folder.endpoint(f"{way}-{secrets.token_hex(4)}")
    if way in ("tcp", "curve"):
        endpoint = f"tcp://127.0.0.1:{free_port()}"
    sender = start(folder, "send", way, endpoint, size, num_messages)
    receiver = start(folder, "receive", way, endpoint, size, num_messages)
    try:
        output, _ = receiver.communicate(timeout=TURN_TIMEOUT_S)
        return float(output)
    except (subprocess.TimeoutExpired, ValueError) as error:
        what = f"{num_messages} messages on {endpoint}"
        raise PeerTimeout("bench", "its two processes", what, TURN_TIMEOUT_S) from error
    finally:
        for process in (sender, receiver):
            process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start(
    folder: SocketFolder, act: str, way: str, endpoint: str, size: int, num_messages: int
) -> subprocess.Popen[str]:
    """One of the two processes, with the environment of a learner."""
    from spreeze_zmq.commands.bench.isolated import environment  # not at the top: the processes need no torch

    arguments = [act, way, endpoint, str(size), str(num_messages)]
    return subprocess.Popen(
        [*PROGRAM, "spreeze_zmq.commands.bench.channels", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment(), KEYS_VARIABLE: str(keys_file(folder))},
    )


# --- the processes --------------------------------------------------------------------------------


def high_water_mark(size: int) -> int:
    """Messages of ``size`` bytes that may queue at each end."""
    return max(MIN_QUEUED, min(MAX_QUEUED, MAX_QUEUED_BYTES // size))


def bare_socket(kind: int, size: int) -> zmq.Socket[bytes]:
    """A socket of plain pyzmq with the fastest settings."""
    bare: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    bare.hwm = high_water_mark(size)
    bare.sndtimeo = bare.rcvtimeo = bare.linger = int(1000 * TIMEOUT_S)
    bare.copy_threshold = 0
    return bare


def receive(way: str, endpoint: str, size: int, num_messages: int) -> None:
    """Receive all messages, and print messages/s."""
    pull: Callable[[], object]
    if way == "bare":
        bare = bare_socket(zmq.PULL, size)
        bare.bind(endpoint)
        pull = partial(bare.recv_multipart, copy=False)
    else:
        puller = Puller(endpoint, bind=True, high_water_mark=high_water_mark(size), keys=keys_of(way))
        pull = partial(puller.pull, TIMEOUT_S)
    for number in range(num_messages):
        if number == 1:
            began_s = time.perf_counter()
        if pull() is None:
            raise PeerTimeout("bench", "its sender", f"a message on {endpoint}", TIMEOUT_S)
    print((num_messages - 1) / (time.perf_counter() - began_s))


def keys_of(way: str) -> Keys | None:
    """The bench's keys; None for plain ways."""
    return read_keys() if way == "curve" else None


def send(way: str, endpoint: str, size: int, num_messages: int) -> None:
    """Send the same array in every message without a copy, then wait until stdin is closed."""
    array = np.zeros(size // 4, np.float32)
    if way == "bare":
        push, header = bare_socket(zmq.PUSH, size), b"h" * 170
        push.connect(endpoint)
        for _ in range(num_messages):
            push.send(header, zmq.SNDMORE)
            push.send(array.data.cast("B"), copy=False)
    else:
        pusher = Pusher(
            endpoint,
            sender="bench-0",
            incarnation=1,
            high_water_mark=high_water_mark(size),
            keys=keys_of(way),
        )
        counts = {"version": 1, "critic_updates": 1, "env_steps": 1}
        message = Message("critic", counts, {"parameters": array})
        for _ in range(num_messages):
            if not pusher.push(message, TIMEOUT_S):
                raise PeerTimeout("bench", "its receiver", f"a place on {endpoint}", TIMEOUT_S)
    # A receiver whose queue is full would lose the messages that the kernel still holds.
    sys.stdin.read()


if __name__ == "__main__":
    act = send if sys.argv[1] == "send" else receive
    act(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
