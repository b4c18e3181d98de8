"""Channels between two ends in one process, over real ipc sockets."""

from collections import Counter

import numpy as np
import pytest

from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher, Puller, Pusher, SocketFolder, Subscriber, poll

#: What never comes is given up after this time, however busy the machine is.
TIMEOUT_S = 30.0


class Bench:
    """Opens ends in a folder of their own, and closes whatever was opened."""

    def __init__(self):
        self.folder = SocketFolder.create("test")
        self.channels = []

    def open(self, kind, channel="channel", **options):
        """One end; pullers and publishers bind."""
        endpoint = options.pop("endpoint", None) or self.folder.endpoint(channel)
        options = {"sender": "peer-0", "incarnation": 1, "linger_s": 0.0, **options}
        options.setdefault("bind", issubclass(kind, Puller | Publisher))
        opened = kind(endpoint, **options)
        self.channels.append(opened)
        return opened

    def pair(self, **options):
        """A pusher and its puller."""
        return self.open(Pusher, **options), self.open(Puller, **options)

    def audience(self, **options):
        """A publisher and a subscriber that it knows of."""
        publisher = self.open(Publisher, **options)
        subscriber = self.open(Subscriber, **options)
        while subscriber.sender.encode() not in publisher._askers:  # the last that it says
            self.joined(publisher)
        return publisher, subscriber

    def joined(self, publisher):
        """Wait until somebody's subscription has come, and been served."""
        assert poll([publisher], timeout_s=TIMEOUT_S) == {publisher}

    def arrived(self, channel):
        """Wait until something can be read."""
        assert channel in poll([channel], timeout_s=TIMEOUT_S)

    def taken(self, subscriber, count):
        """The next messages that are no repetitions to it, once as many are there."""
        found = []
        while len(found) < count:
            self.arrived(subscriber)
            found += [message] if (message := subscriber.receive()) else []
        return found

    def close(self):
        """Leave nothing behind."""
        for channel in self.channels:
            channel.close()
        self.folder.remove()


@pytest.fixture
def bench():
    """Ends that are closed after the test."""
    made = Bench()
    yield made
    made.close()


def refused_by(channel):
    """The number of messages that a channel's end has refused, by reason."""
    count = Counter()
    for row in channel.refusals.rows():
        count[row["word"]] += row["count"]
    return count


def weights(version=1, num_bytes=1024, value=0.0):
    """A critic message of about this size."""
    fields = {"version": version, "critic_updates": version, "env_steps": version}
    return Message("critic", fields, {"parameters": np.full(num_bytes // 4, value, np.float32)})
