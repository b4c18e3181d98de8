"""What a placed role binds elsewhere is bound by the head: real sockets, processes that come and go."""

import os
from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.base.endpoints import read_keys
from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.nodes.exchange import Exchange
from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import KEYS_FILE
from spreeze_zmq.run.versions import VersionFile, newest_version
from spreeze_zmq.wire.channels import SocketFolder, forwarding, open_channel, poll
from tests.protocol.golden_messages import MESSAGES

DEADLINE_S = 20.0


class Head:
    """A run whose actor-learner is placed, and its exchange."""

    def __init__(self, folder, resume_from=None):
        self.sockets = SocketFolder.create("exchange")
        plan = topology.load("pendulum", ["placement.actor_learner=node"])
        plan = replace(plan, run=replace(plan.run, resume_from=resume_from))
        folder.mkdir(parents=True)
        listening = Listening.at("127.0.0.1", plan)
        self.plan = listening.plan.placed(folder, self.sockets.path)
        keys, guests = make_key_files(self.sockets.path, folder / "join.key")
        (guests / "all").write_text(read_keys(self.sockets.path / KEYS_FILE).public)
        self.exchange = Exchange(self.plan)
        place = listening.address, b"", keys, guests
        self.nodes = Nodes(self.plan, *place, incarnation=1, exchange=self.exchange)
        self.ends = []

    def end(self, channel, kind, incarnation=1, *, elsewhere=False):
        """One end of a channel, as a process here has it, or one on another machine."""
        plan = self.plan.channels[channel]
        plan = plan if elsewhere else replace(plan, back="")
        self.ends.append(open_channel(plan, kind, "actor_learner-0", incarnation))
        return self.ends[-1]

    def close(self):
        """Leave nothing behind."""
        for end in self.ends:
            end.close()
        self.nodes.close("")
        self.sockets.remove()


@pytest.fixture
def heads(tmp_path):
    """Makes heads."""
    made = []

    def make(name, **options):
        made.append(Head(tmp_path / name, **options))
        return made[-1]

    yield make
    for head in made:
        head.close()


def policy(version):
    """A policy of this version."""
    golden = MESSAGES["policy"]
    return golden._replace(fields={**golden.fields, "version": version})


def heard(subscriber):
    """The version that comes next."""
    while poll([subscriber], timeout_s=DEADLINE_S):
        if (message := subscriber.receive()) is not None:
            return message.fields["version"]
    raise AssertionError("no policy came")


def published(publisher, version):
    """Publish as soon as somebody listens."""
    while not publisher.subscriptions:
        assert poll([publisher], timeout_s=DEADLINE_S)
    publisher.publish(policy(version))


def test_policies_pass_from_whichever_machine_and_their_versions_are_kept(heads):
    """A life that was given up says nothing more, although its connection lives on."""
    head = heads("run")
    reader = head.end("policy", "sub")
    first = head.end("policy", "pub", 1, elsewhere=True)
    published(first, 7)
    assert heard(reader) == 7
    assert newest_version(head.sockets.path) == 7
    head.exchange.fence("critic_learner")
    first.publish(policy(8))
    assert heard(reader) == 8
    head.exchange.fence("actor_learner")
    first.publish(policy(99))
    second = head.end("policy", "pub", 2, elsewhere=True)
    published(second, 9)
    assert heard(reader) == 9
    assert newest_version(head.sockets.path) == 9


def test_a_late_reader_gets_the_newest_policy(heads):
    """Its subscription reaches the publisher, which repeats it."""
    head = heads("run")
    publisher = head.end("policy", "pub", elsewhere=True)
    early = head.end("policy", "sub")
    published(publisher, 3)
    assert heard(early) == 3
    late, before = head.end("policy", "sub"), publisher.subscriptions
    while publisher.subscriptions == before:
        assert poll([publisher], timeout_s=DEADLINE_S)
    assert heard(late) == 3


def test_rollouts_wait_for_a_learner_that_is_not_there(heads):
    """Then come to it in their order; none is lost."""
    head = heads("run")
    name = "experience.actor_learner"
    sampler = head.end(name, "push")
    golden = MESSAGES["rollout"]
    rollouts = [golden._replace(fields={**golden.fields, "produced": 10 * number}) for number in range(1, 4)]
    assert all(sampler.push(rollout, DEADLINE_S) for rollout in rollouts)
    learner = head.end(name, "pull", elsewhere=True)
    got = [learner.pull(DEADLINE_S) for _ in rollouts]
    assert [message.fields["produced"] for message in got] == [10, 20, 30]
    assert np.array_equal(got[0].arrays["obs"], golden.arrays["obs"])


def test_a_run_that_goes_on_begins_beyond_the_last_version(heads, tmp_path):
    """Also beyond those after its checkpoint."""
    head = heads("run")
    reader, publisher = head.end("policy", "sub"), head.end("policy", "pub", elsewhere=True)
    published(publisher, 41)
    assert heard(reader) == 41
    after = heads("after", resume_from=str(tmp_path / "run" / "checkpoints" / "1"))
    assert newest_version(after.sockets.path) == 41


def test_a_full_disk_keeps_no_policy_back(heads):
    """The user hears of it once, and later versions are written where there is room."""
    head = heads("run")
    reader, publisher = head.end("policy", "sub"), head.end("policy", "pub", elsewhere=True)
    here, there = head.exchange._versions.values()
    full, room = os.open("/dev/full", os.O_RDWR), os.dup(there._descriptor)
    os.dup2(full, there._descriptor)
    published(publisher, 1)
    publisher.publish(policy(2))
    assert [heard(reader), heard(reader)] == [1, 2]
    assert here.read() == 2
    [event] = head.nodes.serve()
    assert (
        event.line
        == f"{head.plan.run_dir}/policy.version: No space left on device; the run goes on without it"
    )
    os.dup2(room, there._descriptor)
    publisher.publish(policy(3))
    assert heard(reader) == 3
    assert there.read() == 3
    assert head.nodes.serve() == []
    os.close(full)
    os.close(room)


def test_the_run_hears_that_nothing_is_passed_on(heads, monkeypatch):
    """Once, so that it can end."""
    head = heads("run")

    def fail(forwarders, timeout_s):
        raise MemoryError("no buffer")

    monkeypatch.setattr(forwarding, "forward", fail)
    head.exchange.join(DEADLINE_S)
    with pytest.raises(ChannelError, match="is passed on no more: MemoryError: no buffer"):
        head.nodes.serve()
    assert head.nodes.serve() == []


def test_a_version_is_never_lowered(tmp_path):
    """Whoever knows less."""
    file = VersionFile(tmp_path)
    file.raise_to(5)
    file.raise_to(3)
    assert (file.read(), newest_version(tmp_path)) == (5, 5)
    file.close()
    assert newest_version(tmp_path / "nowhere") is None
