"""A machine's relay between real ends: one connection, nothing lost, the newest policy for who comes late."""

import threading
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest

from spreeze_zmq.base.endpoints import write_keys
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.place import wires_of
from spreeze_zmq.nodes.relay import Relays, RelayThread
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import KEYS_FILE
from spreeze_zmq.plan.roles import CONTROL, POLICY, REPORT, SAMPLER, experience_of
from spreeze_zmq.wire import Message, rollout_message
from spreeze_zmq.wire.channels import SocketFolder, forwarding, make_keys, open_channel, poll, terminate
from tests.protocol.golden_messages import MESSAGES
from tests.unit.wire.test_wire_rollouts import make_rollout

DEADLINE_S = 30.0
EXPERIENCE = experience_of("critic_learner")


class Machine:
    """A run that listens, and one machine of it."""

    def __init__(self, folder):
        self.sockets, self.there = SocketFolder.create("head"), SocketFolder.create("there")
        plan = Listening.at("127.0.0.1", topology.load("pendulum")).plan
        self.plan = plan.placed(folder, self.sockets.path)
        head, guests = make_key_files(self.sockets.path, folder / "join.key")
        keys = make_keys()
        (guests / "node-1").write_text(keys.public)
        write_keys(replace(keys, server=head.public), self.there.path / KEYS_FILE)
        self.wires = wires_of(self.plan, self.there.path, [SAMPLER])
        for wire in self.wires.values():
            wire.make_gate()
        self.relay = RelayThread(self.wires)
        self.ends = []

    def head(self, channel, end):
        """The end of who binds a channel."""
        return self._kept(open_channel(self.plan.channels[channel], end, "learner", 1))

    def sampler(self, channel, end, name="sampler-0"):
        """A sampler's end of a channel."""
        return self._kept(open_channel(self.wires[channel].near, end, name, 1))

    def _kept(self, end):
        self.ends.append(end)
        return end

    def connections(self, channel):
        """To the head's port of a channel."""
        port = int(self.plan.channels[channel].remote.rpartition(":")[2])
        every = psutil.Process().net_connections(kind="tcp")
        return [one for one in every if one.raddr and one.raddr.port == port]

    def close(self):
        """Leave nothing behind."""
        self.relay.end(0.0)
        self.relay.join(DEADLINE_S)
        for end in self.ends:
            end.socket.linger = 0
            end.close()
        terminate()
        self.sockets.remove()
        self.there.remove()
        assert self.relay.failure is None


@pytest.fixture
def machine(tmp_path):
    """With a relay for each channel that samplers use."""
    made = Machine(tmp_path)
    yield made
    made.close()


def policy(version):
    """A policy message."""
    message = MESSAGES["policy"]
    return message._replace(fields={**message.fields, "version": version})


def newest(subscriber, publisher):
    """The version that a subscriber gets, while the publisher answers subscriptions."""
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        poll([publisher, subscriber], timeout_s=0.1)
        if (message := subscriber.newest(0.0)) is not None:
            return message.fields["version"]
    return None


def test_a_policy_comes_once_for_all_and_again_for_who_comes_late(machine):
    """Also where everybody else has it already; a sampler needs no keys."""
    publisher = machine.head(POLICY, "pub")
    first = machine.sampler(POLICY, "sub")
    publisher.publish(policy(7))
    assert newest(first, publisher) == 7
    late = machine.sampler(POLICY, "sub")
    assert newest(late, publisher) == 7
    assert newest(machine.sampler(POLICY, "sub"), publisher) == 7
    publisher.publish(policy(8))
    assert [newest(each, publisher) for each in (first, late)] == [8, 8]
    assert len(machine.connections(POLICY)) == 1
    assert not machine.wires[POLICY].near.keys


def test_the_last_policy_comes_to_a_reader_that_was_busy_until_its_learner_had_left(machine):
    """It found no room in this machine's queue, of which the learner knew nothing: nobody else has it."""
    publisher = machine.head(POLICY, "pub")
    reader = machine.sampler(POLICY, "sub", "evaluator-0")
    publisher.publish(policy(0))
    assert newest(reader, publisher) == 0
    large = {**MESSAGES["policy"].arrays, "parameters": np.zeros(100_000, np.float32)}
    for version in range(1, 20):
        before = machine.relay.num_bytes("received")
        publisher.publish(policy(version)._replace(arrays=large))
        while machine.relay.num_bytes("received") == before:
            time.sleep(0.001)
    assert publisher.await_askers("evaluator", 0.0)
    machine.ends.remove(publisher)
    publisher.close()
    version, until_s = 0, time.monotonic() + DEADLINE_S
    while version < 19 and time.monotonic() < until_s:
        later = reader.newest(1.0, ask=True)
        version = version if later is None else later.fields["version"]
    assert version == 19


def test_what_a_relay_repeats_hides_no_later_policy_that_is_on_its_way(machine):
    """It answers at once, the learner's last one may still be on a slow link."""
    publisher = machine.head(POLICY, "pub")
    reader = machine.sampler(POLICY, "sub", "evaluator-0")
    publisher.publish(policy(0))
    assert newest(reader, publisher) == 0
    sent = threading.Timer(0.3, publisher.publish, [policy(1)])
    sent.start()
    last = reader.newest(2.0, ask=True)
    sent.join()
    assert last.fields["version"] == 1


def pushed(machine, names):
    """Rollouts of these samplers until the machine has no room for another; their ends, and how many."""
    ends = {name: machine.sampler(EXPERIENCE, "push", name) for name in names}
    counts = dict.fromkeys(names, 0)
    fields = machine.plan.channels[EXPERIENCE].fields
    refused = 0
    while refused < 12:  # a second; of one look a relay that is held up might see the end alone
        came = [
            end.push(rollout_message(replace(make_rollout(), sampler=name), fields), 0.02)
            for name, end in ends.items()
        ]
        counts = {name: counts[name] + more for name, more in zip(counts, came, strict=True)}
        refused = 0 if any(came) else refused + 1
    return counts


def test_rollouts_wait_by_machine_and_none_is_lost(machine):
    """In front of a learner that takes none: each sampler's in their order, once it does. Those who look know
    that there is no room. What samplers have sent before they ended leaves before the funnel does.
    """
    learner = machine.head(EXPERIENCE, "pull")
    counts = pushed(machine, [f"sampler-{index}" for index in range(4)])
    samplers = machine.ends[1:]
    assert [end.is_held for end in samplers] == [True] * 4
    machine.relay.end()
    found = {name: [] for name in counts}
    for _ in range(sum(counts.values())):
        message = learner.pull(DEADLINE_S)
        found[message.sender].append(message.sequence)
    assert learner.pull(0.1) is None
    assert found == {name: list(range(count)) for name, count in counts.items()}
    machine.relay.join(DEADLINE_S)
    assert not machine.relay.is_alive()
    assert not any(end.is_held for end in samplers)


def test_what_was_sent_before_the_head_was_lost_is_owed_until_it_has_arrived(machine, monkeypatch):
    """As the kernel says, which sends it again when the link has healed: the relay has nothing more to do."""
    arrived, relays = threading.Event(), Relays()
    monkeypatch.setattr(forwarding, "is_owed", lambda connection: not arrived.is_set())
    relays.now = machine.relay
    learner = machine.head(EXPERIENCE, "pull")
    sampler = machine.sampler(EXPERIENCE, "push")
    assert sampler.push(rollout_message(make_rollout(), machine.plan.channels[EXPERIENCE].fields), DEADLINE_S)
    assert learner.pull(DEADLINE_S) is not None
    assert not relays.owes
    relays.leave(is_lost=True)
    time.sleep(0.5)
    assert relays.owes
    arrived.set()
    machine.relay.join(DEADLINE_S)
    assert not relays.owes


def test_what_is_relayed_follows_from_who_binds(machine):
    """All that samplers use; a queue of rollouts holds as many as production may be ahead."""
    assert set(machine.wires) == {
        POLICY,
        CONTROL,
        REPORT,
        *map(experience_of, machine.plan.learning.learners),
    }
    far = machine.wires[EXPERIENCE].far
    assert far.high_water_mark == machine.plan.balance.slack_rollouts
    assert far.endpoint == machine.plan.channels[EXPERIENCE].remote


def test_a_relay_waits_for_the_one_before(machine):
    """Whose sockets it takes."""
    machine.relay.end()
    machine.relay = RelayThread(machine.wires, before=machine.relay)
    broker = machine.head(REPORT, "pull")
    about = {"role": "sampler", "name": "sampler-0", "pid": 1, "protocol": 1, "host": "desk"}
    machine.sampler(REPORT, "push").try_push(Message("hello", about))
    assert broker.pull(DEADLINE_S).fields["host"] == "desk"
