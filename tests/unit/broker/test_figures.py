"""Rates of counters over a sliding window."""

import math

from hypothesis import given
from hypothesis import strategies as st

from spreeze_zmq.broker.figures import Rates
from spreeze_zmq.broker.learning_figures import LearningFigures


def test_a_steady_counter_has_its_rate():
    """100 a second, reported each half second."""
    rates = Rates(window_s=2.0)
    for tick in range(21):
        rates.add("env_steps", 50 * tick, tick / 2)
    assert rates.rate("env_steps", 10.0) == 100.0


def test_a_rate_forgets_what_is_older_than_its_window():
    """After a change the rate is the new one within one window."""
    rates = Rates(window_s=2.0)
    for tick in range(11):
        rates.add("env_steps", 1000 * tick, float(tick))
    for tick in range(1, 4):
        rates.add("env_steps", 10_000 + 10 * tick, 10.0 + tick)
    assert rates.rate("env_steps", 13.0) == 10.0


def test_a_rate_needs_two_points_and_time_between_them():
    """Until then it is 0."""
    rates = Rates()
    assert rates.rate("env_steps", 0.0) == 0.0
    rates.add("env_steps", 5, 1.0)
    assert rates.rate("env_steps", 1.0) == 0.0
    rates.add("env_steps", 9, 1.0)
    assert rates.rate("env_steps", 1.0) == 0.0
    rates.add("env_steps", 13, 2.0)
    assert rates.rate("env_steps", 2.0) == 4.0


def test_a_counter_that_is_silent_has_no_rate():
    """The rate of a dead learner falls to 0."""
    rates = Rates(window_s=2.0)
    rates.add("updates", 0, 0.0)
    rates.add("updates", 100, 1.0)
    assert rates.rate("updates", 2.9) == 100.0
    assert rates.rate("updates", 3.1) == 0.0


def test_what_the_run_has_sampled_stays_sampled():
    """A learner that was started again is at its checkpoint, before it is restored at 0; what it has trained
    is what its weights have learned from.
    """
    figures = LearningFigures()
    for steps, trained in ((1000, 8000), (0, 0), (400, 3200), (1010, 3300)):
        fields = {"role": "critic_learner", "gauges": {}}
        figures.take("x/1", {**fields, "counters": {"env_steps": steps, "trained_transitions": trained}}, 1.0)
        assert figures.counts["env_steps"] == max(1000, steps)
        assert figures.counts["trained_transitions"] == trained


def test_a_counter_that_falls_starts_again():
    """A restarted process counts from its checkpoint; a rate is never negative."""
    rates = Rates()
    rates.add("updates", 1000, 0.0)
    rates.add("updates", 10, 1.0)
    assert rates.rate("updates", 1.0) == 0.0
    rates.add("updates", 30, 2.0)
    assert rates.rate("updates", 2.0) == 20.0


@given(st.lists(st.tuples(st.floats(-1, 10), st.integers(0, 10**12)), max_size=50), st.floats(0, 100))
def test_a_rate_is_always_a_number(steps, later_s):
    """Finite and not negative, whatever clocks and counters do."""
    rates = Rates(2.0)
    now_s = 0.0
    for step_s, value in steps:
        now_s += step_s
        rates.add("x", value, now_s)
        assert 0.0 <= rates.rate("x", now_s + later_s) < math.inf
