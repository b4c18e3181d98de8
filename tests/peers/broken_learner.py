"""Broken learners and evaluators: a shipped one of which one thing is changed: ROLE L1,H4 RUN INDEX."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from spreeze_zmq.algorithms.packing import Packing
from spreeze_zmq.balance import DelayGate, RatioGate
from spreeze_zmq.base.errors import ChannelError, WireError
from spreeze_zmq.broker.account import Receipts
from spreeze_zmq.component import Component, component, life, weights
from spreeze_zmq.learner import lag, vault
from spreeze_zmq.learner.rounds import RoundExperience
from spreeze_zmq.wire import channels
from spreeze_zmq.wire.channels import sockets


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
    """No lock."""
    patch(component, "claim_name")(lambda right: lambda role, index, plan: (index, None))


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


def c1():
    """Ends where nobody has bound yet."""

    @patch(channels, "open_channel")
    def check(right):
        def opened(plan, end, name, life):
            if end in ("push", "sub") and not Path(plan.endpoint.removeprefix("ipc://")).exists():
                os._exit(1)
            return right(plan, end, name, life)

        return opened


def c3():
    """Its queue has no end."""
    patch(channels.Puller, "_set_options")(
        lambda right: lambda self, mark, size, linger: right(self, 0, 0, linger)
    )


def c6():
    """Takes critics of the first incarnation alone."""

    @patch(weights.Weights, "take")
    def of_the_first(right):
        def take(self):
            message, first = right(self), self.__dict__.setdefault("first", [])
            first += [message.incarnation] if message and not first else []
            return message if message and message.incarnation == first[0] else None

        return take


def rounds():
    """Waits until critics come of rollouts that another life of the critic-learner has lost."""

    @patch(RoundExperience, "meet")
    def of_one_life(right):
        def meet(self, message):
            self._critics_from = message.incarnation
            right(self, message)

        return meet


def c7():
    """Hangs about after its bye."""
    patch(Component, "close")(lambda right: lambda self, reason: (right(self, reason), time.sleep(20)))


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
    """Dies of a message that is to be refused."""
    sockets.Channel.refuse = lambda self, *about, **more: os._exit(1)


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


def t1():
    """Takes whatever comes."""
    RatioGate.may_pull = property(lambda gate: True)


def t2():
    """The next life begins with version 0 again."""

    @patch(lag.Versions, "__init__")
    def anew(right):
        def begin(self, path, first=0):
            path.unlink(missing_ok=True)
            right(self, path, first)

        return begin


def t3():
    """What it has received is lost, it says."""

    @patch(Receipts, "to_dict")
    def lost(right):
        def to_dict(self):
            rows = right(self)
            return {
                name: {**row, "received": 0, "lost": row["lost"] + row["received"]}
                for name, row in rows.items()
            }

        return to_dict


def t4():
    """Says that it is saved, and is not."""

    @patch(vault, "write_part")
    def unwritten(right):
        def write(folder, name, make):
            part = right(folder, name, make)
            (folder / name).unlink()
            return part

        return write


def t5():
    """Enters what is refused as received."""
    patch(Receipts, "take")(lambda right: lambda self, rollout, refused=False: right(self, rollout))


def t6():
    """Does not wait for critics; two cores have more to do than its updates, which it makes at leisure."""
    DelayGate.may_update = property(lambda gate: gate.critic_updates > 0 and not time.sleep(0.02))


def t7():
    """Takes weights of any layout."""
    Packing.check = lambda self, layout, what: None


def changed_evaluation(change):
    """Every evaluation is changed before it is reported."""

    @patch(Component, "report")
    def changed(right):
        def report(self, kind, fields, *rest, **more):
            fields = change(self, fields) if kind == "evaluation" else fields
            return right(self, kind, fields, *rest, **more)

        return report


def e1():
    """Names another seed than that of its episodes."""
    changed_evaluation(lambda self, fields: {**fields, "seed": fields["seed"] + 1000})


def e2():
    """Names another moment than that of the policy."""
    changed_evaluation(lambda self, fields: {**fields, "env_steps": fields["env_steps"] + 1})


def e3():
    """Never finds one the best."""
    changed_evaluation(lambda self, fields: {**fields, "best": False})


def f2():
    """Reports a best policy that it does not keep."""
    changed_evaluation(lambda self, fields: self.folder.best_policy.unlink(missing_ok=True) or fields)


MISTAKES = {
    name.upper(): mistake
    for name, mistake in list(globals().items())
    if name[1:].isdecimal() and name[0] in "lcmhtef"
}
MISTAKES |= {"H3": h2, "C6-rounds": rounds}

if __name__ == "__main__":
    role, mistakes = sys.argv[1:3]
    del sys.argv[1:3]
    for mistake in mistakes.split(","):
        MISTAKES[mistake]()
    sys.exit(life.run(role, importlib.import_module(f"spreeze_zmq.components.{role}.__main__").main))
