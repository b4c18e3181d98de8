"""A run whose disk fills up: one line, exit code 2, and what was saved stays."""

import contextlib
import json
import subprocess
import time

import pytest

from spreeze_zmq.run.history import read_run
from tests.system.conftest import LAUNCH

FULL = "its disk is full; make room there"


@pytest.fixture
def small(tmp_path):
    """A disk of 400 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file):
    """Leave no byte free."""
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass


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
        fill(small / "filler")
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
        fill(small / "filler")
        said = launcher.communicate(timeout=60)[1]
    finally:
        launcher.kill()
    assert launcher.returncode == 2, said
    assert f"{run}: {FULL}" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert FULL in read_run(run).exit_reason
    assert json.loads((run / "summary.json").read_text())["failures"]
    fill(small / "filler2")
    again = subprocess.run([*command, str(small / "again")], capture_output=True, text=True, check=False)
    assert (again.returncode, "Traceback" in again.stderr) == (2, False)
    assert f"{small / 'again'}: {FULL}" in again.stderr
