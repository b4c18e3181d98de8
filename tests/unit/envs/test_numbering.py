"""Each environment of a run can be given a number of its own."""

import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.numbering import has_number, numbered
from spreeze_zmq.learner.replayed import relabelling
from spreeze_zmq.learner.setup import algorithm_of
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import FILM, PAGE, first_index
from spreeze_zmq.plan.roles import LEARNERS
from tests.system.maze import Maze
from tests.unit.envs.ported import Port

HERE = "tests.unit.envs.test_numbering"
PORT = "tests.unit.envs.ported:Port"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{index}", 7),
        ("tcp://here:50{index:02d}", "tcp://here:5007"),
        ("{{index}}", "{index}"),
        ({"a": ["{index}", "x{index}"], "b": 3}, {"a": [7, "x7"], "b": 3}),
        (("{index}", [("x{index}", 3)]), (7, [("x7", 3)])),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        (r"\d{3}", r"\d{3}"),
    ],
)
def test_the_number_stands_for_its_placeholder(value, expected):
    """Alone it is an integer; other braces are the user's own."""
    assert numbered(value, 7) == expected
    assert has_number(value) == (numbered(value, 7) != numbered(value, 8))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{idx}", r"'\{idx\}' is no placeholder: \{index\} is the number .* '\{\{idx\}\}'"),
        ("{index:q}", "'q'"),
    ],
)
def test_another_placeholder_is_refused(value, said):
    """The line says which there is, and how the text itself is written."""
    with pytest.raises(InvalidEnvironment, match=said):
        envs.look(PORT, {"name": value})


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_environment_of_a_batch_has_its_own(num_workers):
    """From the first one's on, also in workers."""
    kwargs = {"port": "{index}", "name": "at {index}"}
    with closing(envs.make(PORT, 3, num_workers=num_workers, first_index=5004, **kwargs)) as batch:
        obs, _ = batch.reset()
    assert np.round(obs[:, 0] * 100).tolist() == [4, 5, 6]


def test_the_second_of_a_kind_that_cannot_be_made_says_how_to_number_them():
    """The first could be made, with the same arguments."""
    with pytest.raises(
        InvalidEnvironment, match=r"Address already in use.*3 here.*port = \"\{index\}\".*sampler.workers"
    ):
        envs.make(PORT, 3)
    Port.taken.clear()


def test_a_native_task_has_no_numbers():
    """All of its environments are one object."""
    with pytest.raises(InvalidEnvironment, match="same arguments"):
        envs.look("Pendulum-v1", {"g": "{index}"})


def test_no_two_environments_of_a_run_have_the_same_number():
    """Whatever the number of samplers becomes, in each of three groups."""
    plan = topology.load("pendulum", ["components.sampler.envs=4", "components.evaluator.episodes=6"])
    first = first_index(plan, "evaluator")
    taken = [0, PAGE, FILM, *range(first, first + 6)]
    ones = {**{(learner, 0): 1 for learner in LEARNERS}, **{("sampler", index): 4 for index in range(8)}}
    for number in range(3):
        group = replace(plan, groups=replace(plan.groups, count=3, number=number))
        for (role, index), count in ones.items():
            first = first_index(group, role, index)
            taken += range(first, first + count)
    assert sorted(taken) == list(range(len(taken)))


class NumberedMaze(Maze):
    """Of goals, so that a learner makes one too."""

    made: list[int] = []  # noqa: RUF012

    def __init__(self, number):
        super().__init__()
        NumberedMaze.made.append(number)


def test_a_learner_that_judges_goals_makes_the_environment_of_its_own_number():
    """For as long as it lives; the one that was tried before the run has long been closed."""
    run = {"env": f"{HERE}:NumberedMaze", "env_kwargs": {"number": "{index}"}, "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": {"hindsight": "future", "hidden_sizes": [8]}})
    half = algorithms.make("critic", *algorithm_of(plan), plan.environment, "cpu", 1)
    about = {"plan": plan, "environment": plan.environment, "role": "critic_learner"}
    relabelling(SimpleNamespace(**about, at_end=[]), half)
    assert sys.modules[HERE].NumberedMaze.made == [first_index(plan, "critic_learner")]
