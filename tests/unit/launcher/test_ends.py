"""How the ends of processes are told, and what they mean for the run's exit code."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from spreeze_zmq.launcher.deadlines import Deadlines
from spreeze_zmq.launcher.ends import Ends
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.outcome import Outcome
from spreeze_zmq.plan import topology
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.supervisor import Exited, GaveUp, Restarted

WORDS = "Traceback (most recent call last):\nOSError: disk"


@pytest.fixture
def told(tmp_path):
    """The handler of events of a run, its outcome, and what the user sees."""
    folder, notes = RunFolder(tmp_path), []
    folder.summary.write_text(json.dumps({"samples": {"produced": 1}, "trained_transitions": 1}))
    outcome = Outcome(folder, topology.load("pendulum"), stop_reason="env_steps 10 >= 10")
    crew = SimpleNamespace(deadlines=SimpleNamespace(begin=lambda name: None))
    kinds = []
    ends = Ends(outcome, crew, None, Interrupts(), lambda kind, **fields: kinds.append(kind), notes.append)
    return SimpleNamespace(ends=ends, outcome=outcome, notes=notes, folder=folder, kinds=kinds)


def exited(name="evaluator-0", *, code=None, number=None, **changes):
    """A process that was asked to stop has ended."""
    about = {"expected": True, "killed": False, "overdue": False, "restarting": False, "lived_s": 3.0}
    log_path = Path(f"logs/{name}.log")
    return Exited(
        name=name, pid=1, code=code, signal=number, words=WORDS, log_path=log_path, **{**about, **changes}
    )


@pytest.mark.parametrize(("how", "exit_code"), [({"code": 1}, 1), ({"code": 2}, 2), ({"number": 11}, 1)])
def test_who_crashes_when_it_is_asked_to_stop_has_failed(told, how, exit_code):
    """Its last words are shown, and the run is no success."""
    told.ends.on_event(exited(**how))
    [(name, what)] = told.outcome.failures
    assert (name, "OSError: disk" in what, len(told.notes)) == ("evaluator-0", True, 1)
    assert told.outcome.settle({}, at_once=False) == exit_code
    assert told.outcome.last_word.startswith("evaluator-0 failed as the run ended: ")


@pytest.mark.parametrize("name", ["evaluator-0", "visualizer-0"])
def test_the_broker_hears_why_before_it_counts_a_restart(told, name):
    """Who sees the restart in summary.json finds its reason there, whenever the broker is killed."""
    told.outcome.stop_reason = ""
    told.ends.on_event(exited(name, number=signal.SIGKILL, expected=False, restarting=True))
    assert told.kinds == ["failure", "exited"]


@pytest.mark.parametrize("name", ["critic_learner-0", "visualizer-0"])
def test_a_deadline_that_is_missed_is_one_failure(told, name):
    """Its reason is told when the process is killed for it; that this ended it is none, a crash before is."""
    told.outcome.stop_reason = ""
    deadlines, killed = told.ends._crew.deadlines, []
    deadlines.missed, deadlines.give_up = lambda *_: "not ready after 30 s", lambda _: None
    told.ends._crew.supervisor = SimpleNamespace(names=lambda: [name], kill=killed.append)
    told.ends._crew.place_of = lambda _: ""
    told.ends.on_late(name, {}, {})
    again = {"expected": False, "restarting": True, "killed": True}
    told.ends.on_event(exited(name, number=signal.SIGKILL, **again))
    assert (killed, told.kinds, len(told.notes)) == ([name], ["failure", "exited"], 1)
    told.ends.on_event(exited(name, code=1, **again))
    assert told.kinds == ["failure", "exited"] * 2


@pytest.mark.parametrize(
    "how",
    [
        {"code": 0},
        {"number": signal.SIGTERM},
        {"code": 128 + signal.SIGTERM},
        {"number": signal.SIGKILL, "killed": True},
    ],
)
def test_who_ends_as_it_was_asked_to_is_no_failure(told, how):
    """Also a program without a handler, a shell that waited for one, and one killed at a second Ctrl-C."""
    told.ends.on_event(exited(**how))
    assert (told.outcome.failures, told.notes) == ([], [])
    assert told.outcome.settle({}, at_once=False) == 0


def test_a_sampler_that_crashes_as_it_is_taken_away_does_not_fail_the_run(told):
    """It is shown, as a crash that a restart mends is."""
    told.outcome.stop_reason = ""
    told.ends.on_event(exited("sampler-3", code=1))
    assert [name for name, _ in told.outcome.failures] == ["sampler-3"]
    assert told.outcome.settle({}, at_once=False) == 0


def test_a_broker_that_comes_back_for_the_last_checkpoint_does_not_fail_the_run(told):
    """It was killed while the run that the user had interrupted waited for that."""
    told.ends.on_event(exited("broker-0", number=signal.SIGKILL, expected=False, restarting=True))
    assert told.outcome.settle({}, at_once=False) == 0


def test_a_group_that_crashes_at_the_end_fails_the_run(told):
    """The member's process says so where the group was asked to end, too."""
    told.ends.on_event(exited("member-0", code=1))
    assert told.outcome.settle({}, at_once=False) == 1
    assert told.outcome.last_word.startswith("member-0 failed as the run ended: ")


@pytest.mark.parametrize(
    ("how", "exit_code"),
    [({"code": 1}, 1), ({"number": signal.SIGSEGV}, 1), ({"number": signal.SIGKILL}, 0)],
)
def test_a_group_on_a_machine_that_crashes_at_the_end_fails_the_run_too(told, how, exit_code):
    """Unless it was killed there: somebody has taken the machine back."""
    told.ends._lending = SimpleNamespace(may_lose=lambda name: True)
    told.ends.on_event(exited("member-0", **how))
    assert told.outcome.settle({}, at_once=False) == exit_code
    assert told.outcome.last_word.startswith("member-0 failed as the run ended: ") == bool(exit_code)


def test_an_observer_that_crashes_at_the_end_is_named_and_no_more(told):
    """The run has what it was asked to have."""
    told.ends.on_event(exited("observer-0", code=1))
    assert told.notes == [
        f"observer-0: exited with code 1; when it was asked to stop ({told.folder.logs}/observer-0.log)"
    ]
    assert told.outcome.settle({}, at_once=False) == 0


def test_callbacks_that_are_gone_for_good_are_said_at_once_and_at_the_end(told):
    """A logger's service has nothing of the hours since; the run itself is whole."""
    told.outcome.stop_reason = ""
    told.ends._crew.ports = SimpleNamespace(shut=lambda role: None)
    told.ends.on_event(exited("observer-0", number=signal.SIGKILL, expected=False))
    told.ends.on_event(GaveUp("observer-0", "4 crashes within 60 s"))
    line = "observer-0 is not started again: 4 crashes within 60 s; callbacks are called no more"
    assert told.notes[1:] == [line]
    assert told.outcome.settle({}, at_once=False) == 0
    assert told.outcome.lines()[-1] == line


def test_a_start_again_is_not_given_the_time_that_its_server_waited_for_a_core(told):
    """Until the server has forked a process its id is the server's, which had waited before, as it began."""
    name, now = "critic_learner-0", SimpleNamespace(s=100.0, starved_s=0.0)
    deadlines = Deadlines(told.outcome.plan, lambda name: now.starved_s, lambda: now.s)
    told.ends._crew.deadlines = deadlines
    told.ends.on_event(exited(name, code=1, expected=False, restarting=True))
    now.s, now.starved_s = 101.0, 50.0
    told.ends.on_event(Restarted(name, 1, 1.0))
    assert deadlines.missed(name, {}) == ""
    now.s, now.starved_s = 140.0, 2.0
    assert "not ready after 39 s, in 2 s of which" in deadlines.missed(name, {})


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("reason", "unmarked"),
    [
        ("sampler-0: policy refused (bad_parameters) 12 times: too few; none gets through", "crashed"),
        ("sampler-0 is not started again: it has failed 4 times within 60 s", "crashed"),
        ("critic_learner-0: 10 handshakes failed: bad_keys: other keys", "ended"),
    ],
)
def test_a_run_that_was_given_up_has_failed_for_who_reads_it_later(told, reason, unmarked, marked):
    """``spreeze runs`` and a search that goes on: by its mark, and where its launcher left none by a reason
    that no other run has.
    """
    told.folder.run_file.write_text(told.outcome.plan.to_json())
    told.folder.summary.write_text(json.dumps({"exit_reason": reason}))
    told.outcome.give_up(reason)
    if marked:
        assert told.outcome.settle({}, at_once=False) == 1
        assert json.loads(told.folder.summary.read_text()) == {"exit_reason": reason, "failed": True}
    assert read_run(told.folder.path).state == ("crashed" if marked else unmarked)


def test_very_many_failures_leave_a_summary_that_can_be_read(told):
    """The first and the newest are in it; whoever made them printed sixty lines each time."""
    told.folder.run_file.write_text(told.outcome.plan.to_json())
    told.folder.summary.write_text(json.dumps({"exit_reason": "", "wall_s": 1.0, "failures": []}))
    for number in range(10_000):
        told.ends.fail("sampler-0", f"failure {number}\n" + "a line of a traceback of many words\n" * 60)
    told.folder.end_summary("interrupted", told.outcome.failures)
    summary = read_run(told.folder.path).summary
    assert summary["exit_reason"] == "interrupted"
    named = [failure["summary"] for failure in summary["failures"]]
    assert (named[0], named[-1]) == ("failure 0", "failure 9999")
