"""What the run hears of the end of one of its groups."""

import signal
from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.launcher import member
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from tests.unit.launcher.test_ends import exited


@pytest.fixture
def plan(tmp_path):
    """Of a run of two groups."""
    made = topology.load("pendulum", ["groups.count=2"], cores=4)
    plan, sockets = write_plan(made, RunFolder.create("run", str(tmp_path / "run")))
    yield plan
    sockets.remove()


@pytest.fixture
def ended(plan, monkeypatch):
    """Makes the second group of a run, which has ended as ``happens`` says to its outcome."""

    def group(happens):
        def launch(own_plan, folder, view, *, interrupts):
            outcome = Outcome(folder, own_plan, stop_reason="interrupted by the run")
            return SimpleNamespace(outcome=outcome, run=lambda: happens(outcome))

        monkeypatch.setattr(member, "Launch", launch)
        made = member.MemberRun(plan, 0)
        made.run()
        return made

    return group


def crash(outcome, fault=None):
    """A process of it crashes as it is asked to end."""
    outcome.fail_at_end("sampler-0", "OSError: disk")
    outcome.input_fault = fault
    outcome.folder.summary.write_text('{"samples": {"produced": 1}, "trained_transitions": 1}')
    return outcome.settle({}, at_once=False)


@pytest.mark.parametrize(("fault", "kind"), [(None, SpreezeError), (("sampler-0", "disk"), InputError)])
def test_a_crash_at_the_end_of_a_group_is_one_of_the_run(ended, fault, kind):
    """As one in the run's own group is, with the reason and the exit code."""
    failure = ended(lambda outcome: crash(outcome, fault)).failure(asked=True)
    assert type(failure) is kind
    assert str(failure) == "group 1 has ended: sampler-0 failed as the run ended: OSError: disk"


def test_a_launcher_that_fails_as_its_group_ends_is_told_too(ended):
    """It is a thread of the member's process."""
    assert str(ended(lambda outcome: 1 / 0).failure(asked=True)).endswith(
        "ZeroDivisionError: division by zero"
    )


def test_a_group_that_was_asked_to_end_before_its_first_step_is_no_failure(ended):
    """Unasked it is one."""
    group = ended(lambda outcome: 1)
    assert group.failure(asked=True) is None
    assert "group 1 has ended: " in str(group.failure(asked=False))


def test_who_ends_by_sigterm_after_its_group_was_asked_to_is_no_failure(plan, monkeypatch):
    """Its launcher knows of the request at once: SIGTERM may have reached all processes of a run."""
    group = member.MemberRun(plan, 0)

    def run(launch):
        group.stop("the end of the run")
        launch.ends.on_event(exited("sampler-0", number=signal.SIGTERM, expected=False))
        launch.line.close()
        launch.sockets.remove()
        launch.crew.close()
        return len(launch.outcome.failures)

    monkeypatch.setattr(member.Launch, "run", run)
    group.run()
    assert group.code == 0, group.last_word
