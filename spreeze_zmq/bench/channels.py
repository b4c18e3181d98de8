"""The channels in ``spreeze bench``: what one moves between two processes, beside what bare pyzmq moves."""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spreeze_zmq.bench import bare as bench_bare
from spreeze_zmq.channels import Puller, Pusher, SocketFolder
from spreeze_zmq.errors import PeerTimeout
from spreeze_zmq.wire import Message

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 22)
#: What may queue at each end, the same for both ways: as many large messages as the policy channel lets (see
#: the table of channels), and at most as many small ones as reports may.
MIN_QUEUED, MAX_QUEUED = 4, 1000
MAX_QUEUED_BYTES = 1 << 18
TIMEOUT_S = 10.0
TURN_TIMEOUT_S = 30.0
#: Length of one turn; the two take turns, so that what else the machine does falls on both alike.
TURN_S = 0.3
FIRST_GUESS_BYTES_PER_S = 1e9
FIRST_GUESS_MESSAGES_PER_S = 30_000

Way = Literal["bare", "channel"]


@dataclass(frozen=True)
class Row:
    """What moved for one size of message.

    Attributes:
        message_bytes: size of the array in each message.
        bare_per_s: messages/s of bare pyzmq, the median over the turns.
        channel_per_s: messages/s of Pusher to Puller, likewise.
        ratio: the median of the ratios of neighbouring turns.
    """

    message_bytes: int
    bare_per_s: float
    channel_per_s: float
    ratio: float

    @property
    def bare_gb_per_s(self) -> float:
        """GB/s of bare pyzmq."""
        return self.bare_per_s * self.message_bytes / 1e9

    @property
    def channel_gb_per_s(self) -> float:
        """GB/s of the channel."""
        return self.channel_per_s * self.message_bytes / 1e9


def measure(sizes: Sequence[int] = SIZES, seconds: float = 4.0) -> list[Row]:
    """Measure each size for about ``seconds``, bare pyzmq and the channel in turn, two processes over ipc.

    Raises:
        PeerTimeout: the sending process did not deliver.
    """
    folder = SocketFolder.create("bench")
    try:
        return [_measure_size(folder, size, max(2, round(seconds / (2 * TURN_S)))) for size in sizes]
    finally:
        folder.remove()


def _measure_size(folder: SocketFolder, size: int, num_pairs: int) -> Row:
    rates: dict[Way, list[float]] = {"bare": [], "channel": []}
    guess = min(FIRST_GUESS_BYTES_PER_S / size, FIRST_GUESS_MESSAGES_PER_S)
    for pair in range(num_pairs + 1):
        ways: tuple[Way, Way] = ("bare", "channel") if pair % 2 else ("channel", "bare")
        for way in ways:
            num_messages = max(20, int(TURN_S * (rates[way][-1] if rates[way] else guess)))
            rates[way].append(_turn(folder, way, size, num_messages))
    bare_rates, channel_rates = rates["bare"][1:], rates["channel"][1:]  # the first pair only warms up
    return Row(
        message_bytes=size,
        bare_per_s=statistics.median(bare_rates),
        channel_per_s=statistics.median(channel_rates),
        ratio=statistics.median(
            ours / theirs for ours, theirs in zip(channel_rates, bare_rates, strict=True)
        ),
    )


def _turn(folder: SocketFolder, way: Way, size: int, num_messages: int) -> float:
    """Messages/s of one stream, from its first message to its last; starting the processes is not in it."""
    endpoint = folder.endpoint(f"{way}-{secrets.token_hex(4)}")
    sender = _start("send", way, endpoint, size, num_messages)
    receiver = _start("receive", way, endpoint, size, num_messages)
    try:
        said, _ = receiver.communicate(timeout=TURN_TIMEOUT_S)
        return float(said)
    except (subprocess.TimeoutExpired, ValueError) as error:
        what = f"{num_messages} messages on {endpoint}"
        raise PeerTimeout("bench", "its two processes", what, TURN_TIMEOUT_S) from error
    finally:
        for process in (sender, receiver):
            process.kill()
            process.communicate()


def _start(act: str, way: Way, endpoint: str, size: int, num_messages: int) -> subprocess.Popen[str]:
    """One of the two processes, set up as the launcher sets up a learner."""
    from spreeze_zmq.autoscale.sizing import KEEP_FREED_MEMORY  # not at the top: the processes do without

    arguments = [act, way, endpoint, str(size), str(num_messages)]
    return subprocess.Popen(
        [sys.executable, "-m", "spreeze_zmq.bench.channels", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **KEEP_FREED_MEMORY, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def high_water_mark(size: int) -> int:
    """Messages of ``size`` bytes that may queue at each end."""
    return max(MIN_QUEUED, min(MAX_QUEUED, MAX_QUEUED_BYTES // size))


def _receive(way: str, endpoint: str, size: int, num_messages: int) -> None:
    """The receiving process: takes everything and says how many a second."""
    pull = _bare_pull(endpoint, size) if way == "bare" else _channel_pull(endpoint, size)
    pull()
    began_s = time.perf_counter()
    for _ in range(num_messages - 1):
        pull()
    print((num_messages - 1) / (time.perf_counter() - began_s))


def _bare_pull(endpoint: str, size: int) -> Callable[[], object]:
    return bench_bare.Puller(endpoint, high_water_mark(size), TIMEOUT_S).pull


def _channel_pull(endpoint: str, size: int) -> Callable[[], object]:
    puller = Puller(endpoint, bind=True, high_water_mark=high_water_mark(size))

    def pull() -> Message:
        message = puller.pull(TIMEOUT_S)
        if message is None:
            raise PeerTimeout("bench", "its sender", f"a message on {endpoint}", TIMEOUT_S)
        return message

    return pull


def _send(way: str, endpoint: str, size: int, num_messages: int) -> None:
    """The sending process: every message the same array, as bare and as channel."""
    array = np.zeros(size // 4, np.float32)
    mark = high_water_mark(size)
    sent: object
    if way == "bare":
        sent = bench_bare.send(endpoint, array.data.cast("B"), num_messages, mark, TIMEOUT_S)
    else:
        sent = pusher = Pusher(endpoint, sender="bench-0", incarnation=1, high_water_mark=mark)
        counts = {"version": 1, "critic_updates": 1, "env_steps": 1}
        message = Message("critic", counts, {"parameters": array})
        for _ in range(num_messages):
            if not pusher.push(message, TIMEOUT_S):
                raise PeerTimeout("bench", "its receiver", f"a place on {endpoint}", TIMEOUT_S)
    # Not to leave before all is taken: a receiver whose queue is full loses what the kernel still holds.
    sys.stdin.read()
    del sent


if __name__ == "__main__":
    act = _send if sys.argv[1] == "send" else _receive
    act(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
