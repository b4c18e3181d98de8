"""A process that is started by hand while the run ends; the broker is real, the test plays the launcher."""

import json
import signal
import time

from spreeze_zmq.wire import Message, channels
from tests.component.conftest import DEADLINE_S

STOPPED = ["sampler", "critic_learner", "actor_learner"]


def heard_late(peers, name):
    """The roles of the stop that a process hears which subscribes only now."""
    late = channels.open_channel(peers.plan.channels["control"], "sub", name, 1)
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        channels.poll([late], [], timeout_s=0.1)
        while (message := late.receive()) is not None:
            if message.kind == "stop":
                late.close()
                return message.fields["roles"]
    raise AssertionError("no stop came")


def test_who_comes_late_hears_of_every_role_that_was_stopped(peers):
    """A sampler during the last evaluation, after the learners were stopped; also from another broker."""
    peers.play("broker")
    broker = peers.start()
    peers.next("status")
    launcher = channels.open_channel(peers.plan.channels["report"], "push", "launcher", 1)
    workers = {"role": "sampler", "count": 1, "reason": "as the topology says"}
    assert launcher.post(Message("workers", workers))
    for roles in (STOPPED[:1], STOPPED[1:]):
        assert launcher.post(Message("stopping", {"roles": roles}))
        last = peers.next("stop").fields["roles"]
    assert last == STOPPED
    assert heard_late(peers, "sampler-7") == STOPPED
    state = peers.folder.broker_state
    while not (state.exists() and json.loads(state.read_text())["record"]["stopped"] == STOPPED):
        time.sleep(0.05)
    broker.send_signal(signal.SIGKILL)
    broker.wait(30)
    peers.start()
    assert heard_late(peers, "sampler-8") == STOPPED
