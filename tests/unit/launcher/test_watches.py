"""A full disk is said while it is waited for, and a cleaner of /tmp that removes the sockets is noticed."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.launcher.watches import (
    DISK_CHECK_S,
    ENOUGH_BYTES,
    MISSED,
    SOCKETS_CHECK_S,
    TOUCH_S,
    DiskWatch,
    SocketWatch,
    check_open_files,
    free_bytes,
)
from spreeze_zmq.plan import topology
from spreeze_zmq.wire.channels import Puller, SocketFolder


def test_a_full_disk_is_said_when_it_begins_and_when_it_is_over():
    """Once each, though a few bytes come and go; a folder that is gone says nothing."""
    now_s, free = [100.0], [10**9]

    def left(path):
        if free[0] is None:
            raise FileNotFoundError(path)
        return free[0]

    watch = DiskWatch(Path("/run"), "run", left, lambda: now_s[0])
    said = []
    for value in (10**9, 0, 0, 4096, 0, None, ENOUGH_BYTES, 10**9, 0):
        free[0] = value
        now_s[0] += DISK_CHECK_S
        said.append(watch.news())
        assert watch.news() == ""
    assert [bool(line) for line in said] == [False, True, False, False, False, False, True, False, True]
    assert said[1].startswith("run: its disk is full: each process waits 4.5 s for room")
    assert said[6] == "run: its disk has room again, after 2 s"


def test_the_room_on_a_disk_is_asked_of_the_system(tmp_path):
    """Where this test writes there is some."""
    assert free_bytes(tmp_path) > ENOUGH_BYTES


class Watched:
    """A run's sockets, of which one is bound, and its launcher's watch with a clock by hand."""

    def __init__(self):
        self.sockets, self.now_s = SocketFolder.create("watched"), 0.0
        plan = topology.load("pendulum").placed(Path("/nowhere"), self.sockets.path)
        self.report = self.sockets.path / "report"
        self.puller = Puller(self.sockets.endpoint("report"), bind=True)
        self.watch = SocketWatch(self.sockets, plan.channels, lambda: self.now_s)

    def checks(self, number):
        """What is said after some checks."""
        for _ in range(number):
            self.now_s += SOCKETS_CHECK_S
            said = self.watch.lost()
        return said


@pytest.fixture
def watched():
    """A run's sockets, and what watches them."""
    made = Watched()
    yield made
    made.puller.close()
    made.sockets.remove()


def test_a_socket_that_a_living_process_has_bound_is_missed(watched):
    """One that starts again has none for a moment; that of one that has ended is missed by nobody."""
    (watched.sockets.path / "policy.lock").write_text("999999999")
    assert watched.checks(2 * MISSED) == ""
    aside = watched.report.rename(watched.report.with_name("aside"))
    assert watched.checks(MISSED - 1) == ""
    aside.rename(watched.report)
    assert watched.checks(1) == ""
    watched.report.unlink()
    assert "somebody removed the run's sockets (report) in " in watched.checks(MISSED)


def test_a_folder_that_is_gone_is_missed(watched):
    """With its lock, so that the next run would take it for that of a dead one."""
    (watched.sockets.path / "lock").unlink()
    assert "somebody removed the run's sockets (lock) in " in watched.checks(MISSED)


def test_files_in_use_do_not_grow_old(watched):
    """Cleaners remove what nobody has touched for days."""
    for path in (watched.sockets.path, watched.report):
        os.utime(path, (0, 0))
    watched.checks(1)
    watched.now_s += TOUCH_S
    watched.checks(1)
    assert min(path.stat().st_mtime for path in (watched.sockets.path, watched.report)) > 0


@pytest.mark.parametrize(
    ("options", "threads", "needed", "whose"),
    [
        (["count=[1, 120]"], False, 298, "the broker for up to 125 processes may need 298"),
        (["workers=250", "envs=300", "count=1"], False, 298, "a sampler for its 250 workers may need 298"),
        (["count=10"], True, 288, "the process of --inproc for up to 15 processes may need 288"),
    ],
)
def test_too_few_open_files_are_refused_with_what_needs_them(options, threads, needed, whose):
    """One fewer is too few; a machine without a limit has enough."""
    plan = topology.load("pendulum", [f"components.sampler.{option}" for option in options])
    for enough in (needed, resource.RLIM_INFINITY):
        check_open_files(plan, threads=threads, hard=enough)
    with pytest.raises(InputError, match=rf"process {needed - 1} \(ulimit -Hn\), and {whose}: raise"):
        check_open_files(plan, threads=threads, hard=needed - 1)


def test_a_run_that_needs_more_open_files_than_it_may_have_does_not_start(tmp_path):
    """ZeroMQ would abort its broker in the middle of the run."""
    sampler = ["--set", "components.sampler.count=190", "--set", "run.stop.minutes=0.01"]
    command = [sys.executable, "-m", "spreeze_zmq.commands.begin", "pendulum", *sampler]
    limited = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr.startswith(
        "spreeze-launch: open files: this machine allows a process 256 (ulimit -Hn)"
    )
    assert len(done.stderr.splitlines()) == 1
