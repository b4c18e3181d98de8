"""Rates of counters over a sliding window."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spreeze_zmq.broker.figures import ProcessRecord, Rates
from spreeze_zmq.broker.learning_figures import LIVES_KEPT, LearningFigures
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.plan import topology


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


@pytest.mark.parametrize("round_s", [1.0, 8.0, 45.0])
def test_a_counter_that_rises_once_in_a_round_has_one_rate(round_s):
    """512 a second on the whole, reported twice a second; once the rounds end it falls to 0."""
    rates, seen = Rates(), []
    for tick in range(int(16 * round_s) + 20):
        now_s = tick / 2
        rates.add("env_steps", 512 * round_s * (now_s // round_s), now_s)
        if now_s >= 4 * round_s + 5:
            seen.append(rates.rate("env_steps", now_s + 0.4))
    assert min(seen) == max(seen) == 512.0
    assert rates.rate("env_steps", now_s + 2 * round_s + 5) == 0.0


@pytest.mark.parametrize(("round_s", "hiccup_s"), [(8.0, 12.0), (20.0, 0.0)])
def test_a_counter_that_rises_in_bursts_has_the_rate_of_its_rounds(round_s, hiccup_s):
    """512 a second on the whole, in two rises at once; a rest before the first of them is one of many."""
    rates, seen = Rates(), []
    for tick in range(int(20 * round_s)):
        now_s, in_round_s = tick / 2, tick / 2 % round_s
        done = 512 * round_s * (now_s // round_s) + 256 * round_s * (in_round_s >= 0.5)
        late_s = hiccup_s if now_s >= 2 * round_s else 0.0
        rates.add("env_steps", done, now_s + late_s)
        if now_s >= 6 * round_s and in_round_s >= 0.5:
            seen.append(rates.rate("env_steps", now_s + late_s))
    assert seen == [512.0] * len(seen)
    assert rates.rate("env_steps", now_s + late_s + 2 * round_s + 5) == 0.0


def test_a_counter_that_begins_late_or_goes_on_has_no_rate_of_the_time_without_it():
    """As after a warm-up, or a wait of a minute."""
    rates = Rates()
    for began_s, before in ((100.0, 0), (220.0, 2000)):
        for tick in range(240):
            now_s = began_s - 100.0 + tick / 2
            rates.add("updates", before + max(0, 100 * (now_s - began_s)), now_s)
            if now_s >= began_s + 6:
                assert rates.rate("updates", now_s) == 100.0


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


def test_the_lags_of_very_many_lives_are_one():
    """What was dropped as stale is the sum of all, and the greatest lag that of any."""
    figures, most = LearningFigures(), 7
    for life in range(LIVES_KEPT + 50):
        lag = {"p50": 1, "p99": 2, "max": 9 if life == most else 2, "stale": 3}
        fields = {"role": "critic_learner", "gauges": {}, "counters": {}, "policy_lag": lag}
        figures.take(f"critic_learner-0/{life}", fields, 1.0)
    row = figures.policy_lag([f"critic_learner-0/{life}"], None)
    assert (row.p99, row.max, row.stale) == (2, 9, 3 * (LIVES_KEPT + 50))
    assert len(figures.policy_lags) == LIVES_KEPT


def test_metrics_of_one_name_are_two():
    """Of a pair whose losses both give a gradient_norm one curve leapt between the two."""
    figures = LearningFigures()
    for _ in range(2):
        for role, norm in (("critic_learner", 1.0), ("actor_learner", 5.0)):
            fields = {"role": role, "gauges": {"gradient_norm": norm, f"{role}_own": 0.0}, "counters": {}}
            figures.take(f"{role}-0/1", fields, 1.0)
    own = {"critic_learner_own": 0.0, "actor_learner_own": 0.0}
    assert figures.gauges == {"gradient_norm": 1.0, "policy_gradient_norm": 5.0, **own}
    assert figures.tell_left_out() == ""


def test_what_a_learner_has_computed_stays_computed():
    """Over its next life, which counts from its checkpoint on, and before it is restored from 0; and over a
    restart of the broker: the share of the arithmetic that updates use is of all of them.
    """
    run = RunRecord(topology.load("pendulum"))
    lives = ((1, 300, 300), (1, 1000, 1000), (2, 0, 1000), (2, 400, 1000), (2, 450, 1050), (3, 1070, 1070))
    for life, flops, in_all in (*lives, (3, 1075, 1075)):
        fields = {"role": "critic_learner", "gauges": {}, "counters": {"critic_flops": flops}}
        run.learning.take(f"critic_learner-0/{life}", fields, 1.0)
        assert run.learning.counts["critic_flops"] == in_all
        state = json.loads(json.dumps(run.to_dict()))
        run = RunRecord(run.plan)
        run.restore(state, 1.0)
    assert run.learning.mean_rates(1.0)["critic_flops_per_s"] == 775


def test_a_broker_goes_on_from_what_an_earlier_release_kept():
    """What is kept since stays as it is at a beginning."""
    run = RunRecord(topology.load("pendulum"))
    state = run.to_dict()
    del state["computed_by"], state["devices"]
    run.restore(state, 1.0)
    assert run.learning.computed_by == {}


def test_the_replay_ratio_is_measured_since_it_is_wanted():
    """Not over a time with another one, in this run or in that which it goes on from; on data alone none."""
    run = RunRecord(topology.load("pendulum"))
    figures = run.learning
    figures.resume({"env_steps": 1000, "sampled_transitions": 1000, "trained_transitions": 8000})
    for sampled, trained in ((1500, 9000), (2000, 13_000)):
        counters = {"env_steps": sampled, "sampled_transitions": sampled, "trained_transitions": trained}
        fields = {"role": "critic_learner", "gauges": {}, "counters": counters}
        figures.take("critic_learner-0/1", fields, 1.0)
        assert figures.replay_ratio(2.0).measured == (2.0 if sampled == 1500 else 8.0)
        figures.measure_ratio_anew()
        assert figures.replay_ratio(2.0).measured is None
    assert (figures.replay_ratio(None).target, figures.replay_ratio(None).measured) == (None, None)


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


def test_a_clock_that_goes_slower_is_not_late():
    """A machine whose clock loses 50 ppm, over a week: only what waits in front of the broker is late."""
    one = ProcessRecord("sampler", 1)
    for now_s in np.arange(10.0, 604_800.0, 60.0):
        waited_s = 5.0 if now_s > 604_000.0 else 0.0
        uptime_s = (now_s - waited_s) * (1 - 5e-5)
        one.take({"clock_s": {"busy": uptime_s}, "cpu_s": 1.0, "uptime_s": uptime_s}, now_s)
        assert one.late_s == pytest.approx(waited_s, abs=0.3)


def test_training_episodes_go_on_after_a_restart_and_in_a_resumed_run():
    """As the counts beside them; a restarted broker has the mean of those that came before."""
    run = RunRecord(topology.load("pendulum"))
    run.resume({"t_s": 100.0, "counts": {"env_steps": 1000, "episodes": 300.0}})
    run.episodes.take(np.arange(150.0, dtype=np.float32), np.full(150, 200, np.int32))
    restarted = RunRecord(topology.load("pendulum"))
    restarted.restore(json.loads(json.dumps(run.to_dict())), 120.0)
    expected = {"count": 450, "mean_return": 99.5, "mean_length": 200.0, "recent_return": 141.5}
    expected["num_in_means"] = 100
    for one in (run, restarted):
        status = one.status("training", {}, 120.0)["episodes"]
        assert {name: status[name] for name in expected} == expected
        assert "episode_returns" not in status
    assert restarted.summary("", 120.0, final=True)["episodes"] == 450
