"""Mistakes that any component of ours can be given: each changes one thing of every role's life."""

import os
import signal
import subprocess
import time
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError, WireError
from spreeze_zmq.component import Component, component, life
from spreeze_zmq.wire import channels, decode, encode
from spreeze_zmq.wire.channels import sockets
from spreeze_zmq.wire.channels.refusals import Refusals


def patch(owner, name):
    """Puts in the place of a function what the decorated one makes of it."""

    def put(make):
        setattr(owner, name, make(getattr(owner, name)))

    return put


def changed_report(key, value):
    """Every report is wrong in one field."""
    patch(Component, "own_report")(lambda right: lambda self: {**right(self), key: value})


def l1():
    """Another name in the header."""
    patch(channels, "open_channel")(
        lambda right: lambda plan, end, name, life: right(plan, end, name[1:], life)
    )


def l2():
    """Its lock file is there, and not locked."""

    def claimed(role, index, plan, incarnation):
        Path(plan.socket_dir, f"{role}-{index}.lock").write_text(str(os.getpid()))
        return index, None

    component.claim_name = claimed


def l3():
    """Another exit code where the name is taken."""
    ChannelError.exit_code = 3


def l5():
    """Deaf to SIGTERM."""
    life._heed_signals = lambda component: signal.signal(signal.SIGTERM, signal.SIG_IGN)


def l6():
    """Deaf to stop."""
    Component._on_stop = lambda self, fields: None


def l7():
    """Obeys the stop of others."""
    Component._on_stop = lambda self, fields: self.stop("somebody stops")


def l8():
    """No random incarnation."""
    component.secrets.randbelow = lambda most: 0


def l9():
    """The same incarnation in each life."""
    component.secrets.randbelow = lambda most: 2**40


def l10():
    """Takes a run file of any format."""

    @patch(life.Plan, "read")
    def of_any_format(right):
        def read(path):
            path.write_text(path.read_text().replace('"format": 99', '"format": 2'))
            return right(path)

        return read


def c1():
    """Ends where nobody has bound yet."""

    @patch(channels, "open_channel")
    def check(right):
        def opened(plan, end, name, life):
            if end in ("push", "sub") and not Path(plan.endpoint.removeprefix("ipc://")).exists():
                os._exit(1)
            return right(plan, end, name, life)

        return opened


def c7():
    """Hangs about after its bye."""
    patch(Component, "close")(lambda right: lambda self, reason: (right(self, reason), time.sleep(20)))


def c10():
    """Repeats its latest under a new number."""
    patch(channels.Publisher, "serve")(lambda right: lambda self: (_renumber(self), right(self)))


def _renumber(publisher):
    for key, (_, frames) in publisher.latest.items():
        message = decode(frames)._replace(sequence=publisher.published + 1000)
        publisher.latest[key] = message.sequence, [bytes(frame) for frame in encode(message)]


def l14():
    """Leaves a child behind."""
    patch(Component, "ready")(lambda right: lambda self: (right(self), subprocess.Popen(["sleep", "60"])))


def m2():
    """Counts from 1."""
    channels.Pusher._sent = 1


def m3():
    """A frame too many in each message."""
    patch(sockets, "encode_from")(lambda right: lambda *origin: [*right(*origin), b""])


def m4():
    """Dies of a message that it cannot read."""

    @patch(Refusals, "refuse")
    def deadly(right):
        def refuse(self, *about, taken=False):
            return right(self, *about, taken=True) if taken else os._exit(1)

        return refuse


def m5():
    """Refuses what it does not know."""

    @patch(sockets, "decode")
    def strict(right):
        def decode(frames):
            if b"mood" in bytes(frames[0]):
                raise WireError("bad_header", "moods are not known here")
            return right(frames)

        return decode


def h1():
    """Two hellos."""
    patch(Component, "_say_hello")(lambda right: lambda self: (right(self), right(self)))


def h2():
    """Reports seldom."""
    component.REPORT_INTERVAL_S = 2.5


def h4():
    """Another process's id."""
    changed_report("pid", 1)


def h8():
    """No bye."""
    patch(Component, "report")(lambda right: lambda self, kind, *a: kind != "bye" and right(self, kind, *a))


def named(functions):
    """Clause, and what tells two mistakes of it apart -> the function, of those that are named so."""
    return {
        name[0].upper() + name[1:].replace("_", "-"): made
        for name, made in list(functions.items())
        if callable(made) and name.partition("_")[0][1:].isdecimal()
    }


LIFE = named(globals())
