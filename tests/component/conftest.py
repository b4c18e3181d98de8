"""One real process; the test plays its peers, with the harness that judges the protocol."""

import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from spreeze_zmq.peers.peers import Peers
from spreeze_zmq.plan import sizing, topology

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
#: What a measurement found that no test waits for: 256 suffice.
CURVES = sizing.Curves({64: 5e4, 128: 1e5, 256: 2e5, 512: 2.1e5}, "flat", {}, 0.0)


class Run(Peers):
    """A run of a topology without processes: starts one, and plays everybody else."""

    def __init__(self, folder, overrides=(), name="pendulum"):
        plan = topology.load(name, ["run.stop.minutes=1", *overrides])
        if plan.to_measure:
            plan = sizing.resolved(plan, CURVES, "as the test says")
        super().__init__(plan, "", (), folder, "should", DEADLINE_S)
        self.read, self.past = Counter(), set()

    def play(self, role):
        """Open the other end of each channel of a shipped component."""
        self.role, self.command = role, [sys.executable, str(ROOT / "components" / role)]
        self.open()
        self.mark("begun")

    def start(self, index=0):
        """Start the component as the launcher would. Where a former life of it has ended, what that said and
        nobody has read, or what comes of it late, is passed over by :meth:`next`, and by no other.
        """
        if self.lives and self.lives[-1].ended:
            name, messages = self.lives[-1].name, [heard.message for heard in self.heard]
            self.past |= {message.incarnation for message in messages if message.sender == name}
        return super().start(index).process

    def next(self, kind, channel=""):
        """The next message of a kind; others that came before it on its channel are passed over."""
        channel = channel or self.channel_of(kind)

        def present():
            ahead = self._ahead(kind, channel)
            return [n for n in ahead if self.heard[n].message.incarnation not in self.past]

        place = self.until("", f"a {kind} on {channel}", present)[0]
        self.read[channel] = place + 1
        return self.heard[place].message

    def rest(self, kind):
        """The messages of a kind that no call has returned or passed over yet."""
        return [self.heard[position].message for position in self._ahead(kind, self.channel_of(kind))]

    def _ahead(self, kind, channel):
        """Positions in ``heard``."""
        places = range(self.read[channel], len(self.heard))
        return [n for n in places if (self.heard[n].channel, self.heard[n].message.kind) == (channel, kind)]

    def channel_of(self, kind):
        """The channel that carries a kind to or from the process."""
        return next(
            name
            for name in self.ends
            if name in self.plan.channels and kind in self.plan.channels[name].kinds
        )

    def report(self, enough=lambda fields: True):
        """The fields of the next report that is ``enough``."""
        while not enough(fields := self.next("report").fields):
            pass
        return fields

    def later_report(self, enough=lambda fields: True):
        """The fields of the next report that was made from now on and is ``enough``; any number of earlier
        ones may wait, as where this process was held up.
        """
        from_s = time.time()
        return self.report(lambda fields: fields["time_s"] > from_s and enough(fields))

    def logs(self):
        """Everything that the processes said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.logs.iterdir()))


@pytest.fixture
def peers(tmp_path, request, forked):
    """A run with a test's overrides, whose process the test starts."""
    made = Run(tmp_path / "run", getattr(request, "param", ()))
    yield made
    made.close()
    print(made.logs())
