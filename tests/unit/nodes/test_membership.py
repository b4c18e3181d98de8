"""How a machine's part in a run ends: its processes, and its last words."""

import os
import signal
import time
import tracemalloc
from dataclasses import replace

import pytest

from spreeze_zmq.base.errors import ChannelError
from spreeze_zmq.nodes.half import Half
from spreeze_zmq.nodes.membership import Membership
from spreeze_zmq.nodes.place import wires_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import POLICY, SAMPLER
from spreeze_zmq.supervisor import GroupSpawner, LogWatch, ProcessSpec
from spreeze_zmq.supervisor.logs import MOST_BYTES
from spreeze_zmq.wire.channels import SocketFolder, make_keys

DEADLINE_S = 10.0


@pytest.fixture
def membership(tmp_path):
    """Of a machine that runs one process; nobody is at the head's address."""
    made = Membership(Half("tcp://127.0.0.1:9", replace(make_keys(), server=make_keys().public)))
    made.spawner = GroupSpawner()
    spec = ProcessSpec(name="sampler-8", command=("sleep", "60"), log_path=tmp_path / "log", threads=1)
    made.processes["sampler-8"] = made.spawner.spawn(spec)
    made.logs["sampler-8"] = spec.log_path
    yield made
    made.is_lost = True  # nothing waits for the head
    made._close()


@pytest.fixture
def gone():
    """A folder for sockets that is not there; its path fits into the address of one."""
    sockets = SocketFolder.create("gone")
    sockets.remove()
    return sockets.path


def test_a_relay_that_breaks_as_its_machine_leaves_keeps_it_from_nothing(membership, gone, tmp_path):
    """While it takes part, that ends its part; then its processes end all the same, and it says how."""
    plan = topology.load("pendulum").placed(tmp_path, gone / "head")
    relays = membership.half.relays
    relays.open({POLICY: wires_of(plan, gone / "here", [SAMPLER])[POLICY]})
    relays.now.join(DEADLINE_S)
    with pytest.raises(ChannelError):
        membership._watch()
    membership._end_processes()
    assert not membership.processes
    [ended] = membership.ended
    assert ended.fields["signal"] == signal.SIGTERM


def test_a_machine_keeps_the_logs_that_it_has_within_bounds(membership, tmp_path):
    """Its folder of sockets, where they are, is often in memory."""
    log, said = tmp_path / "sampler-9.log", []
    with log.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, MOST_BYTES + (1 << 20))
    membership.log_watch, membership.half.say = LogWatch(tmp_path), said.append
    membership._turn()
    assert [line for line in said if "its middle is dropped" in line]
    assert log.stat().st_blocks * 512 < MOST_BYTES // 4


def test_the_last_words_of_a_long_log_are_read_alone(membership):
    """A process that has written for weeks, here a file with a hole."""
    log, size = membership.logs["sampler-8"], 300 << 20
    with log.open("r+b") as file:
        file.seek(size)
        file.write(b"it fell over\n")
    process = membership.processes["sampler-8"]
    process.signal(signal.SIGTERM)
    until_s = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.01)
    membership.is_leaving = True
    tracemalloc.start()
    membership._watch()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    [ended] = membership.ended
    assert ended.fields["log"].endswith("it fell over\n")
    assert most < 1 << 20
