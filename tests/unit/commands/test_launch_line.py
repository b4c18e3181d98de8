"""What a command line asks for, and what it is told that it does not get."""

import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.commands.launch_line import load, not_recorded, parser

PLACED = ("--set", "placement.actor_learner=node")


def plan_of(*words):
    """Of pendulum."""
    return load(parser().parse_args(["pendulum", *words]), FirstLook())


@pytest.mark.parametrize("name", ["actor_learner", "actor_learner-0"])
def test_a_process_on_another_machine_cannot_be_recorded(name):
    """The line says what can."""
    assert plan_of(*PLACED, "--record", "critic_learner").recording
    with pytest.raises(InputError, match=f"--record {name}: placement.actor_learner has it run on another"):
        plan_of(*PLACED, "--record", name)


def test_what_is_not_recorded_is_said():
    """Of samplers that join, and of further groups; of a run that has all here nothing."""
    samplers = plan_of("--record", "sampler")
    assert not_recorded(samplers, listens=False) == ""
    assert not_recorded(samplers, listens=True) == "--record: samplers on other machines are not recorded"
    assert not_recorded(plan_of("--record", "critic_learner"), listens=True) == ""
    groups = plan_of("--record", "sampler-0", "--set", "groups.count=2")
    said = "--record: samplers on other machines and the groups from 1 on are not recorded"
    assert not_recorded(groups, listens=True) == said


def test_a_number_that_no_process_has_is_not_recorded():
    """It would begin no recording."""
    assert plan_of("--record", "sampler-0").recording
    with pytest.raises(InputError, match="--record sampler-00: expected a role or a process such as"):
        plan_of("--record", "sampler-00")


def test_a_size_of_no_recording_is_refused():
    """Whoever writes it expects a recording."""
    assert plan_of("--record", "sampler").recording == {"sampler": 1000.0}
    assert plan_of("--record", "sampler", "--record-mb", "3").recording == {"sampler": 3.0}
    with pytest.raises(InputError, match="--record-mb is the size of a recording: write --record PROCESS"):
        plan_of("--record-mb", "3")
