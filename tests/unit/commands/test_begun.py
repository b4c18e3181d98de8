"""``--resume RUN`` alone runs the command that began the run, also where that says what no run has now."""

import json
from dataclasses import replace

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.trust import leave_mark
from spreeze_zmq.commands import launch
from spreeze_zmq.commands.begun import begun_line
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.commands.launch_line import load, parser
from spreeze_zmq.run.folder import RunFolder, write_plan

NO_LEARNER = "this algorithm has no process of this role"
NO_CALLBACKS = "a run without callbacks has no process of this role"
ONE_GROUP = "a run of one group has no process of this role"


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begin a run up to its processes, with further words in its record, as an earlier release took them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def begun(words, recorded=()):
        plan = load(parser().parse_args(words), FirstLook())
        plan = replace(plan, command=(plan.command[0], *recorded, *plan.command[1:]))
        run = RunFolder.create("run", str(tmp_path / "run"))
        write_plan(plan, run)[1].remove()
        assert json.loads(run.run_file.read_text())["command"] == list(plan.command)
        leave_mark(run.path, (), str(tmp_path))
        return run.path

    return begun


def resumed(run, *typed):
    """The plan of the run that goes on."""
    return load(begun_line(run, ["--resume", str(run), *typed]), FirstLook())


@pytest.mark.parametrize(
    ("words", "typed", "why"),
    [
        (["--without=observer"], [], NO_CALLBACKS),
        (["--without=actor_learner"], [], NO_LEARNER),
        (["--set=placement.actor_learner=node"], [], NO_LEARNER),
        (["--set=groups.count=2", "--set=components.member.nice=3"], ["--set", "groups.count=1"], ONE_GROUP),
    ],
)
def test_what_a_recorded_command_says_of_a_role_that_the_run_lacks_is_passed_over(
    words, typed, why, begin, capsys
):
    """With a line, as nobody can take it back; the record of the run that goes on is without it."""
    run = begin(["cartpole_dqn"], words)
    plan = resumed(run, *typed)
    said = words[-1].replace("=", " ", 1)
    assert capsys.readouterr().err == f"passed over: {said}, of the command that began {run}: {why}\n"
    assert words[-1] not in plan.command
    assert launch.main(["--resume", str(run), *typed, "--graph"]) == 0


def test_what_is_typed_for_a_role_that_the_run_lacks_is_refused(begin):
    """Also where the record says the same."""
    run = begin(["cartpole_dqn"], ["--without=observer"])
    with pytest.raises(InputError, match=f"^--without observer: {NO_CALLBACKS}"):
        resumed(run, "--without", "observer")


def test_what_a_recorded_command_leaves_out_stays_out(begin, capsys):
    """Of a role that the run has."""
    run = begin(["pendulum", "--without=actor_learner", "--set=components.actor_learner.nice=3"])
    plan = resumed(run)
    assert not plan.components["actor_learner"].launched
    assert plan.components["actor_learner"].nice == 3
    assert capsys.readouterr().err == ""
