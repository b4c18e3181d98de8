"""A run whose disk fills up: one line, exit code 2, and what was saved stays."""

import contextlib
import json
import subprocess
import time

import pytest

from spreeze_zmq.run.history import read_run
from tests.system import chaos
from tests.system.conftest import LAUNCH

FULL = "its disk is full; make room there"


@pytest.fixture
def small(tmp_path):
    """A disk of 400 kB."""
    with contextlib.ExitStack() as disks:
        try:
            folder = disks.enter_context(chaos.small_disk(tmp_path / "small", "400k"))
        except subprocess.CalledProcessError:
            pytest.skip("only root can mount a small disk")
        yield folder


@pytest.mark.thorough
def test_a_disk_that_has_room_again_ends_no_run(small):
    """Somebody makes room within seconds: what is due is written then, and it is said that it waited."""
    run = small / "run"
    command = [*LAUNCH, "cartpole_dqn", "--set", "run.stop.minutes=0.3", "--run-dir", str(run)]
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        until_s = time.monotonic() + 100
        while not (run / "summary.json").exists() and time.monotonic() < until_s:
            time.sleep(0.1)
        chaos.fill(small / "filler")
        time.sleep(2.0)
        (small / "filler").unlink()
        shown, said = launcher.communicate(timeout=100)
    finally:
        launcher.kill()
    assert launcher.returncode == 0, said
    assert read_run(run).summary["restarts"] == 0
    assert f"{run}: its disk is full: each process waits" in shown, shown
    assert f"{run}: its disk has room again" in shown
    assert "was full for" in (run / "logs" / "broker-0.log").read_text()


@pytest.mark.long("room is waited for, and a run and the next one are begun")
def test_a_full_disk_ends_the_run_with_one_line(small):
    """Neither logs nor journal take another page; the folder is named, and a run cannot begin there."""
    run = small / "run"
    command = [*LAUNCH, "cartpole_dqn", "--set", "run.stop.minutes=2", "--run-dir"]
    launcher = subprocess.Popen(
        [*command, str(run)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        until_s = time.monotonic() + 100
        while not (run / "summary.json").exists() and time.monotonic() < until_s:
            time.sleep(0.1)
        chaos.fill(small / "filler")
        said = launcher.communicate(timeout=60)[1]
    finally:
        launcher.kill()
    assert launcher.returncode == 2, said
    assert f"{run}: {FULL}" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert FULL in read_run(run).exit_reason
    assert json.loads((run / "summary.json").read_text())["failures"]
    chaos.fill(small / "filler2")
    again = subprocess.run([*command, str(small / "again")], capture_output=True, text=True, check=False)
    assert (again.returncode, "Traceback" in again.stderr) == (2, False)
    assert f"{small / 'again'}: {FULL}" in again.stderr
