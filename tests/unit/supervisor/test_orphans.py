"""What a component's programs leave behind is reaped by the launcher, which adopts it: real processes."""

import os
import subprocess
import sys
import time
from contextlib import closing

import psutil

from spreeze_zmq.supervisor import ForkSpawner, ProcessSpec, Supervisor

DEADLINE_S = 20.0
#: Starts two programs whose parent, a shell, ends at once, and lives on.
PROGRAM = "import os, sys, time; os.system('sleep 60 & sleep 60 &'); open(sys.argv[1], 'w'); time.sleep(60)"


def orphans(group):
    """The children of this process that belong to a group and do not lead it."""
    children = [each for each in psutil.Process().children() if each.pid != group]
    return [each for each in children if os.getpgid(each.pid) == group]


def test_orphans_of_a_process_that_lives_are_reaped(tmp_path):
    """An environment that starts a program at each reset would fill the table of processes. A child that this
    process has started itself keeps its exit code.
    """
    own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    until_s = time.monotonic() + DEADLINE_S
    command = (sys.executable, "-c", PROGRAM, str(tmp_path / "begun"))
    with closing(Supervisor(ForkSpawner([]))) as supervisor:
        supervisor.start(ProcessSpec("sampler-0", command, tmp_path / "sampler-0.log"))
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < until_s
            time.sleep(0.01)
        (living,) = supervisor.pids().values()
        adopted = orphans(living)
        for each in adopted:
            each.kill()
        while found := orphans(living):
            assert time.monotonic() < until_s, found
            assert supervisor.poll() == []
            time.sleep(0.01)
        assert len(adopted) == 2
        assert list(supervisor.pids().values()) == [living]
    assert own.wait(DEADLINE_S) == 7
