"""How far a run is, for options that move along it: by counts and a clock, in one learner and in two."""

from types import SimpleNamespace

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.learner.course import Course
from spreeze_zmq.learner.experience import Counts
from tests.unit.algorithms.shipped import BOX

SAC = algorithms.get("sac")
LIMITS = {"env_steps": 1000, "trained_transitions": 8000, "minutes": 10.0}
RATE = {"from": 1.0, "to": 0.0, "over": "run"}


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.s = 500.0

    def __call__(self):
        """The time."""
        return self.s


def learner(part, clock, in_order=False, limits=LIMITS, **options):
    """A half, its counts and its course."""
    made = SAC.Options(hidden_sizes=(4,), precision="fp32", **{"learning_rate": RATE, **options})
    half, counts = algorithms.make(part, SAC, made, BOX, "cpu", 0), Counts()
    return half, counts, Course(half, counts, limits, part == "critic", in_order, clock)


def test_the_limit_that_is_nearest_moves_a_number_and_it_never_goes_back():
    """Env steps first, then trained transitions, then the clock; the rate is 1 minus the largest share."""
    clock = Clock()
    half, counts, course = learner("critic", clock)
    way = [(0, 0, 0.0, 1.0), (300, 800, 60.0, 0.7), (300, 4000, 90.0, 0.5), (310, 4100, 540.0, 0.1)]
    for env_steps, trained, later_s, expected in [*way, (310, 4100, 120.0, 0.1), (310, 9000, 540.0, 0.0)]:
        half.env_steps, counts.trained, clock.s = env_steps, trained, 500.0 + later_s
        course.advance()
        assert half.learning_rate == pytest.approx(expected)


def test_a_run_in_order_follows_no_clock():
    """Whatever the time."""
    clock = Clock()
    half, _, course = learner("critic", clock, in_order=True)
    half.env_steps, clock.s = 250, 1e6
    course.advance()
    assert half.reached == {"env_steps": 250, "trained_transitions": 0, "run": 0.25}
    assert half.learning_rate == 0.75


def test_it_goes_on_from_a_checkpoint():
    """Where it was, and by a clock of which the time between does not count."""
    clock = Clock()
    _, _, course = learner("critic", clock)
    clock.s += 240.0
    course.advance()
    state, clock = course.state(), Clock()
    half, _, course = learner("critic", clock)
    course.restore(state)
    assert half.learning_rate == pytest.approx(0.6)
    clock.s += 60.0
    course.advance()
    assert half.learning_rate == pytest.approx(0.5)
    half, _, course = learner("critic", Clock(), limits={"minutes": 40.0})
    course.restore(state)
    course.advance()
    assert half.learning_rate == pytest.approx(0.6), "a later end takes nothing back"


def test_only_a_schedule_that_is_stated_as_before_stays_where_it_was():
    """Another one is where the run is, by its own end, whatever else moved in the run before; a run after
    that goes on likewise.
    """
    half, _, course = learner("critic", Clock())
    half.env_steps = 1000
    course.advance()
    state, longer = course.state(), {"env_steps": 2000}
    changed = {"learning_rate": {**RATE, "to": 0.5}, "tau": {"from": 0.4, "to": 0.2}}
    half, _, course = learner("critic", Clock(), limits=longer, **changed)
    course.restore(state)
    half.env_steps = 1000
    course.advance()
    assert half.rates() == pytest.approx({"learning_rate": 0.75, "tau": 0.3})
    assert half.reached["run"] == 0.5
    critics, rates = {"learning_rate": {"critic": RATE}}, {"learning_rate": 0.0}
    half, _, course = learner("critic", Clock(), limits=longer, **critics)
    course.restore(state)
    course.advance()
    assert half.rates() == pytest.approx(rates), "the same schedule, in a table by network"
    state = course.state()
    half, _, course = learner("critic", Clock(), limits={"env_steps": 4000}, **critics)
    course.restore(state)
    course.advance()
    assert half.rates() == pytest.approx(rates)


def test_a_checkpoint_of_an_earlier_release_has_one_share_for_all():
    """It did not say of which schedules."""
    half, _, course = learner("critic", Clock())
    course.restore({"reached": {"env_steps": 250, "run": 0.75}})
    assert half.learning_rate == 0.25


def test_minutes_are_those_of_the_runs_limit():
    """As a status of the broker has them: a learner that was started again, or resumed with a schedule that
    the run before did not have, is where the run is; and time in which all stood still moves nothing.
    """
    clock = Clock()
    half, _, course = learner("critic", clock)
    course.restore({})
    course.time.hear({"t_s": 240.0})
    clock.s += 3.0
    course.advance()
    assert half.learning_rate == pytest.approx(0.6 - 0.005)
    clock.s += 3600.0  # a pause: the next update comes before the next status
    course.advance()
    assert 0.59 < half.learning_rate < 0.6
    course.time.hear({"t_s": 246.0})
    clock.s += 54.0  # nothing is heard of the broker, which is started again
    course.advance()
    assert 0.58 < half.learning_rate < 0.6
    course.time.hear({"t_s": 300.0})
    course.advance()
    assert half.learning_rate == pytest.approx(0.5)


def test_the_actor_learner_is_where_the_critics_say():
    """Its own counts move nothing."""
    half, counts, course = learner("policy", Clock())
    half.env_steps, counts.trained = 900, 7000
    course.advance()
    assert half.learning_rate == 1.0
    course.hear(SimpleNamespace(fields={"reached": {"env_steps": 250, "run": 0.25}}))
    assert half.learning_rate == 0.75
    course.hear(SimpleNamespace(fields={}))
    assert half.learning_rate == 0.75


def test_where_nothing_moves_nothing_is_kept():
    """A checkpoint has the entries that it always had."""
    half, _, course = learner("critic", Clock(), learning_rate=1e-3)
    course.advance()
    assert (course.state(), half.reached, half.moves) == ({}, {}, False)
