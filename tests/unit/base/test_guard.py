"""What a process has started ends with it."""

import contextlib
import os
import resource
import signal
import subprocess
import sys

import pytest

from spreeze_zmq.base.errors import InputError, Unguarded
from spreeze_zmq.base.guard import SHELL, Guard, guarded
from spreeze_zmq.nodes.building import build
from tests.unit.supervisor.lives import gone, numbers_in, until

#: An interpreter that imports torch starts within it.
DEADLINE_S = 60.0
#: Starts another one, as a compiler's driver does.
DRIVER = """#!/bin/sh
sleep 600 &
echo $! $$ > {pids}
wait
"""
COMPONENT = 'role = "sampler"\ncommand = ["true"]\nbuild = ["{folder}/driver"]\n'
#: What runs before a run: its code, where ``driver`` is the program and ``folder`` the one of a component.
BEFORE_A_RUN = {
    "compiling": "from spreeze_zmq.nn.native import library; library.compile_to(folder / 'it', driver, [])",
    "building": "from spreeze_zmq.nodes.building import build; build(folder, print)",
    "measuring": "from spreeze_zmq.plan import sizing, topology; sizing.MEASURE = (driver,); "
    "sizing.measure(topology.load('pendulum'))",
}


def test_a_program_that_is_ended_may_remove_what_it_has_half_written(tmp_path):
    """A compiler's object, which would be newer than its source: the next build took it for a whole one."""
    half, begun = tmp_path / "half.o", tmp_path / "begun"
    program = f"trap 'rm {half}; exit 1' TERM; touch {half} {begun}; while :; do sleep 0.01; done"

    def interrupted():
        with guarded([SHELL, "-c", program]):
            until(begun.exists, "its beginning")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not half.exists()


@contextlib.contextmanager
def no_more_files_than(number):
    """So many can be opened meanwhile, whatever numbers those have that are open."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.dup(0)]
    while taken[-1] < highest + number:
        taken.append(os.dup(0))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, before[1]))
    try:
        for _ in range(number):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in taken:
            os.close(each)


def test_a_shell_that_cannot_be_started_is_not_taken_for_the_build(tmp_path):
    """Here no more files may be opened than a component.toml takes; as well there may be no process more."""
    (tmp_path / "component.toml").write_text(COMPONENT.replace("{folder}/driver", "true"))
    with no_more_files_than(2), pytest.raises(InputError) as caught:
        build(tmp_path, print)
    assert str(caught.value).startswith(f"{SHELL} cannot be started")
    assert "Too many open files" in str(caught.value)
    for number in range(2):
        with no_more_files_than(number), pytest.raises(Unguarded, match="Too many open files"):
            Guard()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", BEFORE_A_RUN)
def test_who_is_ended_before_a_run_leaves_nothing_at_work(tmp_path, what, number):
    """Neither the program that it waited for nor what that has started."""
    driver = tmp_path / "driver"
    driver.write_text(DRIVER.format(pids=tmp_path / "pids"))
    driver.chmod(0o755)
    (tmp_path / "component.toml").write_text(COMPONENT)
    code = f"from pathlib import Path; folder, driver = Path({str(tmp_path)!r}), {str(driver)!r}; "
    process = subprocess.Popen([sys.executable, "-c", code + BEFORE_A_RUN[what]], stderr=subprocess.DEVNULL)
    try:
        pids = numbers_in(tmp_path / "pids", 2, DEADLINE_S)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == -number
    finally:
        process.kill()
        process.wait()
    until(lambda: all(gone(pid) for pid in pids), "the end of every process", DEADLINE_S)
