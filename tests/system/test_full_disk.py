"""A run whose disk fills up: one line, exit code 2, and what was saved stays."""

import contextlib
import subprocess
import time

import pytest

from spreeze_zmq.run.history import read_run
from tests.system import chaos
from tests.system.conftest import NAPPING, said_in

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


@pytest.fixture
def begun(small, launch):
    """Begins a run there that lasts some minutes, and waits for its first summary; what the launcher says is
    on another disk.
    """

    def begin(minutes):
        words = (*NAPPING["cartpole_dqn"], "--set", "components.sampler.count=1")
        words += ("--set", f"run.stop.minutes={minutes}", "--run-dir", str(small / "run"))
        run = launch(*words, topology="cartpole_dqn")
        run.folder = small / "run"
        run.until(run.summary, "summary", 100)
        return run

    return begin


@pytest.mark.thorough
def test_a_disk_that_has_room_again_ends_no_run(small, begun):
    """Somebody makes room within seconds: what is due is written then, and it is said that it waited."""
    run = begun(0.3)
    chaos.fill(small / "filler")
    time.sleep(2.0)
    (small / "filler").unlink()
    assert run.end() == 0, run.said()
    shown = run.output.read_text()
    assert read_run(run.folder).summary["restarts"] == 0
    assert f"{run.folder}: its disk is full: each process waits" in shown, shown
    assert f"{run.folder}: its disk has room again" in shown
    assert "was full for" in (run.folder / "logs" / "broker-0.log").read_text()


@pytest.mark.long("room is waited for, and a run and the next one are begun")
def test_a_full_disk_ends_the_run_with_one_line(small, begun, tmp_path):
    """Neither logs nor journal take another page; the folder is named, and a run cannot begin there."""
    run = begun(2)
    chaos.fill(small / "filler")
    assert run.end(60) == 2, run.said()
    said = run.output.read_text()
    assert f"{run.folder}: {FULL}" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert FULL in read_run(run.folder).exit_reason
    assert run.summary()["failures"]
    chaos.fill(small / "filler2")
    code, _, errors = said_in(tmp_path, "cartpole_dqn", "--run-dir", small / "again")
    assert (code, "Traceback" in errors) == (2, False)
    assert f"{small / 'again'}: {FULL}" in errors
