"""What a machine makes of the head's plan, and how it starts what the head asks for."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from spreeze_zmq.base import patience
from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.nodes.half import Half
from spreeze_zmq.nodes.leases import Leases
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.nodes.membership import Membership
from spreeze_zmq.nodes.node import RemoteProcess, add_to_log
from spreeze_zmq.nodes.place import Place
from spreeze_zmq.plan import topology
from spreeze_zmq.run.versions import newest_version
from spreeze_zmq.supervisor import GroupSpawner, ProcessSpec
from spreeze_zmq.wire.channels import Claim, SocketFolder, make_keys

START = {"nice": 0, "threads": 1, "orphaned": 9}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes the folder of a machine for a run of pendulum with these settings."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = []

    def joined(*settings, engine="numpy"):
        plan = Listening.at("127.0.0.1", topology.load("pendulum", settings)).plan
        plan = replace(plan, timing={**plan.timing, "backend": engine})
        keys = make_keys()
        welcome = {"public": keys.public, "secret": keys.secret, "server": keys.public}
        made.append(Place(welcome, plan.placed(tmp_path / "run", tmp_path), b""))
        return made[-1]

    yield joined
    for place in made:
        place.close()


def test_the_version_published_last_is_known_only_where_the_policy_is_published(machine):
    """A critic-learner that read it elsewhere would refuse the rollouts of every later one."""
    place = machine("placement.critic_learner=node", "placement.actor_learner=node")
    place.spec({**START, "name": "critic_learner-0", "policy_version": 3})
    assert newest_version(place.sockets.path) is None
    place.spec({**START, "name": "actor_learner-0", "policy_version": 3})
    assert newest_version(place.sockets.path) == 3


def test_a_machine_whose_disk_is_full_says_what_chooses_another(machine, monkeypatch):
    """In place of a process whose log has no room: its folder of the run lies with its sockets."""
    part = Membership(Half("tcp://127.0.0.1:9", replace(make_keys(), server=make_keys().public)))
    part.place, part.spawner, sent = machine(), GroupSpawner(), []
    part.dealer.send = sent.append

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fields = {**START, "name": "sampler-8"}
    with monkeypatch.context() as patched:
        patched.setattr(patience, "PATIENCE_S", 0.0)
        patched.setattr(os, "write", full)
        part._start(fields)
    part.is_lost = True  # nothing waits for the head
    part._close()
    [ended] = sent
    assert (ended.fields["name"], ended.fields["code"]) == ("sampler-8", 2)
    assert ended.fields["log"].endswith("choose a folder on another disk with XDG_RUNTIME_DIR\n")


def test_a_learner_that_finds_no_file_for_its_memory_may_start_later(machine, monkeypatch):
    """And its machine leaves the run as any other: its folder is gone."""
    place, start = machine("placement.critic_learner=node"), {**START, "name": "critic_learner-0"}

    def full(name):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("spreeze_zmq.base.kept_memory.create", full)
        with pytest.raises(OSError, match="Too many open files"):
            place.spec(start)
    place.close()
    assert not place.sockets.path.exists()
    place = machine("placement.critic_learner=node")
    assert len(place.spec(start).descriptors) == 1


def test_a_name_is_refused_where_no_file_is_left_for_its_lock(monkeypatch):
    """No further name would have one, and they never end."""
    sockets = SocketFolder.create("leases")
    names = (f"sampler-{index}" for index in range(9))

    def lock(path, incarnation, mode):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("spreeze_zmq.wire.channels.locks.lock", lock)
    with pytest.raises(ChannelError, match=r"sampler-0\.lock: cannot be locked: Too many open files"):
        Leases(sockets.path).lease(names, lambda name: False)
    sockets.remove()


def test_a_name_that_another_machine_has_had_begins_with_other_seeds(machine, tmp_path):
    """The head says so, and whoever claims the name sees it as on one machine: two samplers that followed
    each other would else play the same episodes.
    """
    sockets = SocketFolder.create("leases")
    leases, place = Leases(sockets.path), machine()
    for name in ("sampler-8", "sampler-9"):
        assert leases.take(name)
        assert not leases.begin(name)
    assert leases.begin("sampler-8")
    for name, again in (("sampler-8", True), ("sampler-9", False)):
        place.spec({**START, "name": name, "again": again})
        claim = Claim.take(place.sockets.path / name, 7)
        assert claim.had_another == again
        claim.release()
    leases.release()
    sockets.remove()


@pytest.mark.parametrize(
    ("settings", "engine", "expected"),
    [
        ((), "envpool", "envpool"),
        (("components.sampler.backend=gymnasium",), "envpool", "gymnasium"),
        ((), "one_of_a_users_task", "auto"),
    ],
)
def test_environments_are_stepped_by_the_engine_of_the_head(machine, settings, engine, expected):
    """Where it is not there a line says so; "auto" would take another one, or one that is only there."""
    assert machine(*settings, engine=engine).plan.components["sampler"].options["backend"] == expected


def test_a_log_that_cannot_be_written_here_ends_no_process_there(tmp_path):
    """Its machine has the whole one; a disk without room gives the error at the first line."""
    for path in (Path("/dev/full"), tmp_path):
        process = RemoteProcess(ProcessSpec("sampler-0", ["true"], path), 0, lambda message: None)
        process.end(1, "its last words\n")
        assert (process.poll(), add_to_log(path, "more\n")) == (1, 0)
    assert add_to_log(tmp_path / "log", "ten bytes\n") == 10
