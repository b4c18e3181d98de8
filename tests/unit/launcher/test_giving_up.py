"""What a run still waits for that is given up for one of its processes."""

import pytest

from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.view import View
from spreeze_zmq.supervisor import GaveUp

#: So many looks at the broker's messages later it has a last checkpoint, and ends the run.
SAVED_AFTER = 5


@pytest.fixture
def launch(tmp_path):
    """A launcher that has started nothing, and hears of nobody."""
    interrupts = Interrupts()
    interrupts.heed = lambda: None
    folder = RunFolder.create("run", str(tmp_path / "run"))
    made = Launch(topology.load("pendulum"), folder, View(), interrupts=interrupts)
    made.start = made.finish = lambda: None
    made.told, made.looks = [], []
    made.folder.summary.write_text("{}")
    made.line.tell = made.ends._tell = lambda kind, **fields: made.told.append(kind)
    yield made
    made.line.close()
    made.sockets.remove()
    made.crew.close()
    made.pinning.close()


def given_up(launch, name, updates, interrupted_at=SAVED_AFTER):
    """How often it looks for the broker's messages once a process is given up; two requests to stop come at
    one look.
    """
    launch.status = {} if updates is None else {"critic_updates": updates}
    events = [GaveUp(name, "4 crashes within 60 s")]
    launch.supervisor.poll = lambda: [events.pop()] if events else []

    def pump(timeout_s):
        launch.looks.append(timeout_s)
        if len(launch.looks) == interrupted_at:
            launch.interrupts.count = 2
        if len(launch.looks) == SAVED_AFTER:
            launch.outcome.stop("saved")

    launch.pump = pump
    assert launch.run() == 1
    assert launch.outcome.stop_reason == f"{name} is not started again: 4 crashes within 60 s"
    return len(launch.looks)


@pytest.mark.parametrize(("name", "updates"), [("sampler-0", 5), ("evaluator-0", 5), ("sampler-0", 0)])
def test_a_run_that_is_given_up_waits_for_its_last_checkpoint(launch, name, updates):
    """Its learners are sound, and have learned for up to an hour since the one before, or begun to since the
    newest status: the broker knows.
    """
    assert given_up(launch, name, updates) == SAVED_AFTER
    assert "stop_request" in launch.told


@pytest.mark.parametrize(("name", "updates"), [("critic_learner-0", 5), ("broker-0", 5), ("sampler-0", None)])
def test_it_does_not_wait_for_what_cannot_come(launch, name, updates):
    """Who writes the checkpoint is lost, or has not begun."""
    assert given_up(launch, name, updates) == 1


def test_a_second_request_to_stop_ends_the_wait(launch):
    """As it does after Ctrl-C."""
    assert given_up(launch, "sampler-0", 5, interrupted_at=3) == 3


def test_a_full_disk_takes_no_checkpoint(launch, monkeypatch):
    """Whoever was the first to find it full."""
    monkeypatch.setattr(RunFolder, "is_full", True)
    launch.ends.on_event(GaveUp("sampler-0", "4 crashes within 60 s"))
    assert launch.outcome.is_over
