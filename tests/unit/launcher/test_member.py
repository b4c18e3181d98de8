"""What the run hears of the end of one of its groups."""

from types import SimpleNamespace

import pytest

from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.launcher import member
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder, write_plan


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Makes the second group of a run, which has ended as ``happens`` says to its outcome."""
    made = topology.load("pendulum", ["groups.count=2"], cores=4)
    plan, sockets = write_plan(made, RunFolder.create("run", str(tmp_path / "run")))

    def group(happens):
        def launch(own_plan, folder, view):
            outcome = Outcome(folder, own_plan, stop_reason="interrupted by the run")
            return SimpleNamespace(outcome=outcome, run=lambda: happens(outcome))

        monkeypatch.setattr(member, "Launch", launch)
        made = member.MemberRun(plan, 0)
        made.run()
        return made

    yield group
    sockets.remove()


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
