"""Numbers that move along a run: their values, and the forms in which a topology may write them."""

import math

import pytest

from spreeze_zmq.base.schema import Option, Scheduled, Unfit, check, in_words, mapped

RATE = Option("learning_rate", "float", 3e-4, minimum=0.0, schedule=True, by_network=True)
BETA = Option("adam_beta1", "float", 0.9, minimum=0.0, maximum=0.9999, by_network=True)
TAU = Option("tau", "float", 0.01, minimum=0.0, maximum=1.0, schedule=True)
GAMMA = Option("gamma", "float", 0.99, minimum=0.0, maximum=1.0)


@pytest.mark.parametrize(
    ("shape", "progress", "expected"),
    [
        ("linear", 0.0, 8.0),
        ("linear", 0.25, 6.5),
        ("linear", 1.0, 2.0),
        ("cosine", 0.0, 8.0),
        ("cosine", 1 / 3, 2.0 + 6.0 * 0.75),
        ("cosine", 0.5, 5.0),
        ("cosine", 1.0, 2.0),
    ],
)
def test_values_along_the_way(shape, progress, expected):
    """From 8 to 2, by hand; both ends to the bit."""
    found = Scheduled(8.0, 2.0, {}, shape).value(progress)
    assert found == (expected if progress in (0.0, 1.0) else pytest.approx(expected))


def test_progress_is_the_largest_share_that_is_reached():
    """Of the counts that it goes over and no others; the end is the end; without a limit it stays."""
    scheduled = Scheduled(1.0, 0.0, {"env_steps": 100, "minutes": 2.0})
    assert scheduled.progress({}) == 0.0
    assert scheduled.progress({"env_steps": 30, "minutes": 0.5, "trained_transitions": 900}) == 0.3
    assert scheduled.progress({"env_steps": 30, "minutes": 1.0}) == 0.5
    assert scheduled.progress({"env_steps": 130, "minutes": 1.0}) == 1.0
    assert Scheduled.of(LINEAR).progress({"env_steps": 30, "run": 0.25}) == 0.25


@pytest.mark.parametrize(
    ("option", "written", "expected"),
    [
        (RATE, {"from": 1, "to": 0}, {"from": 1.0, "to": 0.0, "over": "run", "shape": "linear"}),
        (
            TAU,
            {"from": 0.1, "to": 0.01, "over": {"env_steps": 5000}, "shape": "cosine"},
            {"from": 0.1, "to": 0.01, "over": {"env_steps": 5000}, "shape": "cosine"},
        ),
        (RATE, {"critic": 1e-3, "policy": 1}, {"critic": 1e-3, "policy": 1.0}),
        (
            RATE,
            {"policy": {"from": 1e-3, "to": 1e-4}},
            {"policy": {"from": 1e-3, "to": 1e-4, "over": "run", "shape": "linear"}},
        ),
        (BETA, {"critics": 0.5}, {"critics": 0.5}),
    ],
)
def test_what_is_written_becomes_one_form(option, written, expected):
    """Which is a form of it, too."""
    assert check(option, written) == expected
    assert check(option, expected) == expected


LINEAR = {"from": 1e-3, "to": 1e-4}


@pytest.mark.parametrize(
    ("option", "written", "problem"),
    [
        (GAMMA, LINEAR, "expected a number of at least 0 and at most 1, got a table"),
        (BETA, LINEAR, "cannot be a schedule"),
        (BETA, {"critic": LINEAR}, "critic: expected a number of at least 0 and at most 0.9999, got a table"),
        (TAU, {"critic": 0.1}, 'a schedule has no "critic"'),
        (RATE, {}, "expected a number of at least 0, got a table"),
        (RATE, {"to": 1e-3}, 'its schedule lacks "from"'),
        (RATE, {"from": 1e-3, "over": "run"}, 'its schedule lacks "to"'),
        (RATE, {**LINEAR, "ovr": "run"}, 'a schedule has no "ovr"'),
        (RATE, {**LINEAR, "to": -1e-4}, '"to" of its schedule: expected a number of at least 0, got -0.0001'),
        (
            RATE,
            {**LINEAR, "from": "fast"},
            '"from" of its schedule: expected a number of at least 0, got "fast"',
        ),
        (
            TAU,
            {**LINEAR, "from": 1.5},
            '"from" of its schedule: expected a number of at least 0 and at most 1',
        ),
        (RATE, {**LINEAR, "shape": "linaer"}, '"shape" of its schedule: expected one of "linear", "cosine"'),
        (RATE, {**LINEAR, "over": 0}, 'expected "run", or a table such as { env_steps = 1000000 }, got 0'),
        (RATE, {**LINEAR, "over": {"env_steps": -5}}, "env_steps: expected a number above 0, got -5"),
        (RATE, {**LINEAR, "over": {"steps": 5}}, '"over" of its schedule has no "steps"'),
        (RATE, {"policy": {"from": 1e-3}}, 'policy: its schedule lacks "to"'),
        (RATE, {"policy": -1.0}, "policy: expected a number of at least 0, got -1"),
        (RATE, [3e-4, 3e-5], "expected a number of at least 0, got [0.0003, 3e-05]"),
    ],
)
def test_what_is_no_schedule_is_refused(option, written, problem):
    """In one line that says what."""
    with pytest.raises(Unfit) as caught:
        check(option, written)
    assert problem in caught.value.problem
    assert "\n" not in caught.value.problem


def test_a_plain_number_of_steps_is_shown_how_to_be_written():
    """Which steps are meant is for the user to say."""
    with pytest.raises(Unfit) as caught:
        check(RATE, {**LINEAR, "over": 500_000})
    assert caught.value.hint == "write { env_steps = 500000 } or { trained_transitions = 500000 }"


def test_numbers_of_tables_are_scaled_and_shown():
    """Each number of each network, and both ends of a schedule."""
    written = {"critic": 4.0, "policy": {"from": 9.0, "to": 1.0}}
    assert mapped(written, math.sqrt) == {"critic": 2.0, "policy": {"from": 3.0, "to": 1.0}}
    assert (mapped(4.0, math.sqrt), in_words(written)) == (2.0, "critic 4, policy 9 to 1")
