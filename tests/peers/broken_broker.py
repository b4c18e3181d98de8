"""Broken brokers: the shipped one of which one thing is changed: B1,L4 RUN INDEX."""

import importlib
import math
import os
import sys
from pathlib import Path

from spreeze_zmq.broker import last_checkpoint, validation
from spreeze_zmq.broker.checkpoint_request import CheckpointRequest
from spreeze_zmq.broker.hearing import Hearing
from spreeze_zmq.broker.helm import Helm
from spreeze_zmq.broker.notes import Notes
from spreeze_zmq.broker.receipts import Receipt
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.broker.requests import Requests
from spreeze_zmq.component import life
from spreeze_zmq.run import checkpoint
from spreeze_zmq.wire import channels
from spreeze_zmq.wire.channels import Claim
from spreeze_zmq.wire.channels.refusals import Refusals
from tests.peers.broken_life import LIFE, named, patch

broker = importlib.import_module("spreeze_zmq.components.broker.__main__")


def changed_status(change):
    """Every status is changed before it is shown."""
    patch(RunRecord, "status")(lambda right: lambda self, *about: change(right(self, *about)))


def l4():
    """Its lock holds another process's id."""
    patch(Claim, "take")(lambda right: lambda path, *life: _rewritten(right(path, *life), path))


def _rewritten(claim, path):
    path.with_name(f"{path.name}.lock").write_text("1")
    return claim


def c9():
    """Takes no lock of the paths that it binds."""
    patch(Claim, "take")(
        lambda right: (
            lambda path, *named: right(
                path if path.name.startswith("broker-") else Path(f"{path}-{os.getpid()}"), *named
            )
        )
    )


def m2():
    """Skips a number with each message."""

    @patch(channels.Publisher, "publish")
    def skipping(right):
        def publish(self, message):
            right(self, message)
            self.published += 1

        return publish


def m3():
    """Publishes something that is no message beside each of its messages."""

    @patch(channels.Publisher, "publish")
    def noisy(right):
        def publish(self, message):
            right(self, message)
            self._send([b"\xc0"])

        return publish


def m4():
    """Dies of a message that it cannot read."""
    Refusals.refuse = lambda self, *about, **more: os._exit(1)


def b1():
    """Shows its status seldom."""
    shown_s = [-math.inf]

    @patch(Helm, "show")
    def seldom(right):
        def show(self, now_s):
            if now_s > shown_s[-1] + 2.5:
                shown_s.append(now_s)
                right(self, now_s)

        return show


def b2():
    """Shows other process ids than were said."""

    def change(status):
        return {**status, "processes": {name: {**row, "pid": 1} for name, row in status["processes"].items()}}

    changed_status(change)


def b2_left():
    """Shows who has left."""
    RunRecord.lose = lambda self, name, how: None


def b3():
    """Counts another number of steps."""
    changed_status(lambda status: {**status, "critic_updates": status["critic_updates"] + 1})


def b4():
    """Does not wait for the last checkpoint."""
    last_checkpoint.LAST_CHECKPOINT_S = -1.0


def b4_asked():
    """Stops the launcher alone, where there is none."""
    patch(Helm, "say")(
        lambda right: (
            lambda self, kind, **fields: right(
                self, kind, **{**fields, "roles": ["launcher"]} if fields.get("roles") == ["*"] else fields
            )
        )
    )


def b5():
    """Completes a checkpoint with the first part."""
    CheckpointRequest.missing = property(lambda self: [])


def b5_torn():
    """Does not look at the files."""
    checkpoint._verify_size = lambda folder, part: None


def b6():
    """Never asks for a checkpoint before the end."""
    patch(Helm, "decide")(
        lambda right: lambda self, now_s: (setattr(self.checkpoints, "next_s", math.inf), right(self, now_s))
    )


def b7():
    """Takes evaluations from anybody."""
    patch(validation, "_check_sender")(
        lambda right: lambda message, plan: message.kind == "evaluation" or right(message, plan)
    )


def b7_account():
    """Believes any account."""
    Receipt.fault = lambda self, before, most: ""


def b8():
    """Tells who comes late only of the roles that were stopped last."""
    Hearing.on_stopping = lambda self, message, now_s: self.helm.say(
        "stop", roles=message.fields["roles"], reason=""
    )


def b9():
    """Begins from nothing after a kill."""
    broker.Broker.restore = lambda self, earlier: None


def b10():
    """Writes another reason into its summary."""
    patch(broker, "write_json")(
        lambda right: (
            lambda path, about, **how: right(
                path, {**about, "exit_reason": "!"} if "cores" in about else about, **how
            )
        )
    )


def b11():
    """Writes nothing down."""
    patch(Notes, "note")(
        lambda right: lambda self, topic, *about: topic != "hello" and right(self, topic, *about)
    )


def b12():
    """Sets twice what it is asked for."""
    patch(Requests, "take")(lambda right: lambda self, *about: _doubled(right(self, *about)))


def _doubled(row):
    row.value *= 2
    return row


#: Those of its life that can be seen of a broker.
LIVING = ("L1", "L2", "L3", "L5", "L8", "L9", "L10", "L14", "C10", "M5")
MISTAKES = {**{name: LIFE[name] for name in LIVING}, **named(globals())}

if __name__ == "__main__":
    mistakes = sys.argv.pop(1)
    for mistake in mistakes.split(","):
        MISTAKES[mistake]()
    sys.exit(life.run("broker", broker.main))
