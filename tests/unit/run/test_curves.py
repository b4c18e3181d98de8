"""Joint learning curves: the interquartile mean and its interval, against their definitions."""

import itertools
import json

import numpy as np
import pytest

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.journal import Journal
from spreeze_zmq.run.curves import (
    AXES,
    Curve,
    improvement,
    interval,
    iqm,
    join,
    profile,
    read_curve,
)


def curve(steps, returns):
    """A run whose axes are the same."""
    return Curve(dict.fromkeys(AXES, np.asarray(steps, float)), np.asarray(returns, float))


@pytest.mark.parametrize("num_runs", range(1, 11))
def test_the_interquartile_mean_leaves_out_the_outer_quarters(num_runs):
    """Of sorted scores, the whole number of runs in a quarter at each end (arXiv 2108.13264, section 4.3)."""
    scores = np.random.default_rng(num_runs).normal(size=(num_runs, 3))
    cut = num_runs // 4
    expected = np.sort(scores, axis=0)[cut : num_runs - cut].mean(0)
    np.testing.assert_allclose(iqm(scores), expected)


def test_one_wild_run_of_four_does_not_move_it():
    """Unlike the mean."""
    scores = np.array([[1.0], [2.0], [3.0], [1e9]])
    assert iqm(scores).item() == 2.5


def test_the_interval_is_that_of_all_possible_resamples():
    """Five runs have 3,125 equally likely resamples; 2,000 drawn ones come near their percentiles."""
    scores = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    every = iqm(scores[np.array([*itertools.product(range(5), repeat=5)])], axis=1)
    low, high = interval(scores[:, None], seed=3)
    near = [np.percentile(every, [1.5, 3.5]), np.percentile(every, [96.5, 98.5])]
    assert near[0][0] <= low.item() <= near[0][1]
    assert near[1][0] <= high.item() <= near[1][1]


def test_of_few_runs_too_the_interval_holds_the_mean_as_often_as_it_says():
    """Of three normal values, in 500 draws."""
    scores = np.random.default_rng(8).normal(size=(3, 500))
    low, high = interval(scores)
    assert ((low <= 0) & (high >= 0)).mean() >= 0.9


def test_the_probability_of_improvement_is_that_of_the_u_test():
    """The statistic of Mann and Whitney divided by the number of pairs; its interval holds it."""
    rng = np.random.default_rng(5)
    first, second = rng.integers(0, 6, 7).astype(float), rng.integers(0, 6, 5).astype(float)
    share, (low, high) = improvement(first, second)
    statistic = pytest.importorskip("scipy.stats").mannwhitneyu(first, second).statistic
    assert share == pytest.approx(statistic / 35)
    assert low <= share <= high
    assert improvement(first + 10, first) == (1, (1, 1))
    assert improvement(first, second[:4])[1] is None
    assert improvement(second[:1], second[:1]) == (0.5, None)


def test_a_profile_is_the_share_above_each_level():
    """It falls from 1 to 0."""
    shares = profile(np.array([1.0, 3.0, 3.0, 8.0]), np.array([0.0, 1.0, 2.0, 3.0, 8.0]))
    np.testing.assert_array_equal(shares, [1, 0.75, 0.75, 0.25, 0])


def test_whole_runs_are_drawn_not_single_points():
    """Of runs that cross, some resample has those of one kind alone in its middle, at all points."""
    scores = np.array(3 * [[0.0, 1.0], [1.0, 0.0]])
    low, high = interval(scores)
    np.testing.assert_array_equal((low, high), ([0, 0], [1, 1]))


def test_a_run_keeps_its_last_evaluation_until_the_next():
    """Before the first evaluation the curve is NaN."""
    values = curve([10, 20], [1.0, 5.0]).at("env_steps", np.array([5.0, 10.0, 19.9, 20.0, 99.0]))
    np.testing.assert_array_equal(values, [np.nan, 1, 1, 5, 5])


def test_curves_are_joined_where_all_of_them_are():
    """From the latest start to the earliest end, so that every point has a value from every run."""
    joint = join([curve([0, 10, 40], [0, 10, 40]), curve([5, 10, 30], [2, 20, 60])], "env_steps")
    assert (joint.x[0], joint.x[-1]) == (5, 30)
    assert (joint.middle[0], joint.middle[-1]) == (1, 35)
    assert join([curve([0, 1], [0, 1]), curve([5, 6], [0, 1])], "env_steps") is None


def test_a_curve_is_of_looks_alone(tmp_path):
    """Fresh episodes are of policies that were chosen for a high score, and would raise the curve."""
    journal = Journal(tmp_path / "metrics.jsonl")
    for t_s, mean, confirmed in ((1.0, 10.0, False), (2.0, 40.0, True), (3.0, 20.0, False)):
        look = {"env_steps": int(100 * t_s), "mean_return": mean, "confirmed": confirmed}
        journal.write("evaluation", t_s, look)
    journal.close()
    found = read_curve(tmp_path)
    assert (found.x["wall_s"].tolist(), found.mean_return.tolist()) == ([1.0, 3.0], [10.0, 20.0])


@pytest.mark.parametrize(
    ("cut", "returns", "is_cut", "num_left_out"),
    [
        ((), [-60.0, -50.0, -6.5], False, 0),
        ((2,), [-60.0, -50.0], False, 1),
        ((0, 1, 2), [-60, -50, -6.5], True, 0),
    ],
)
def test_a_look_that_time_has_cut_is_no_point_beside_whole_ones(tmp_path, cut, returns, is_cut, num_left_out):
    """Where each second costs, the sooner it was cut the more it scores. Where all are, it is these."""
    journal = Journal(tmp_path / "metrics.jsonl")
    for row, mean in enumerate((-60.0, -50.0, -6.5)):
        look = {"env_steps": 100 * row, "mean_return": mean, "timed_out": row in cut}
        journal.write("evaluation", float(row), look)
    journal.close()
    found = read_curve(tmp_path)
    assert (found.mean_return.tolist(), found.is_cut, found.num_left_out) == (returns, is_cut, num_left_out)
    if is_cut:
        with pytest.raises(InputError, match="nothing was evaluated"):
            read_curve(tmp_path, with_cut=False)


def journal_of(folder, *core_s):
    """A journal with an evaluation between the two last statuses, which are a second apart."""
    journal = Journal(folder / "metrics.jsonl")
    for t_s, spent in enumerate(core_s):
        counts = {"env_steps": 100 * t_s, "trained_transitions": 800 * t_s}
        journal.write("status", float(t_s), counts | ({} if spent is None else {"core_s": spent}))
    journal.write("evaluation", len(core_s) - 1.5, {"env_steps": 100, "mean_return": 1.0})
    journal.close()


def test_core_seconds_are_those_until_the_evaluation(tmp_path):
    """As wall time; what its policy had been trained on stands apart from both."""
    journal_of(tmp_path, 0.5, 2.5, 4.5)
    found = {axis: values.tolist() for axis, values in read_curve(tmp_path).x.items()}
    assert found == {
        **{"wall_s": [1.5], "env_steps": [100.0], "trained_transitions": [800.0], "core_s": [3.5]},
        "own_env_steps": [100.0],
    }


def test_a_run_of_groups_stands_beside_others_with_the_counts_of_all(tmp_path):
    """Its page and stop conditions are of group 0; what it cost is not, nor are its core-seconds."""
    journal = Journal(tmp_path / "metrics.jsonl")
    for t_s in (1, 2):
        rows = {"0": 90 * t_s, "1": 100 * t_s, "2": 50 * t_s}
        groups = {name: {"env_steps": n, "trained_transitions": 8 * n} for name, n in rows.items()}
        counts = {"env_steps": 100 * t_s, "trained_transitions": 800 * t_s, "core_s": 7.0}
        journal.write("status", float(t_s), {**counts, "groups": {**groups, "3": "none"}})
    journal.write("evaluation", 2.0, {"env_steps": 150, "mean_return": 1.0})
    journal.write("resumed", 2.0, {})
    groups = {"1": {"env_steps": 40, "trained_transitions": 320}}  # of a run that goes on from it
    counts = {"env_steps": 300, "trained_transitions": 2400, "core_s": 7.0}
    journal.write("status", 3.0, {**counts, "groups": groups})
    journal.write("evaluation", 3.0, {"env_steps": 300, "mean_return": 1.0})
    journal.close()
    found = {axis: values.tolist() for axis, values in read_curve(tmp_path).x.items()}
    assert found == {
        **{"wall_s": [2.0, 3.0], "core_s": [7.0, 7.0]},
        **{"env_steps": [375.0, 640.0], "trained_transitions": [3000.0, 5120.0]},
        "own_env_steps": [150.0, 300.0],
    }


def test_no_life_of_a_fuser_or_broker_counts_another_groups_steps_again(tmp_path):
    """Its rows are of zeros, or not there, until it hears of a group; then they are what they were."""
    journal = Journal(tmp_path / "metrics.jsonl")
    lives = ((400, 500), (0, 0), (0, 520), (450, 520), None, (460, 0))
    for t_s, counts in enumerate(lives, 1):
        rows = {str(number): count for number, count in enumerate(counts or (), 1)}
        groups = {name: {"env_steps": n, "trained_transitions": 8 * n} for name, n in rows.items()}
        status = {"env_steps": 100 * t_s, "trained_transitions": 800 * t_s, "core_s": 7.0, "groups": groups}
        journal.write("status", float(t_s), status)
        journal.write("evaluation", float(t_s), {"env_steps": 100 * t_s, "mean_return": 1.0})
    journal.close()
    beyond = np.array([900, 900, 920, 970, 970, 980])
    own = 100 * np.arange(1, 7)
    x = read_curve(tmp_path).x
    np.testing.assert_array_equal(x["env_steps"], own + beyond)
    np.testing.assert_array_equal(x["trained_transitions"], 8 * (own + beyond))


def test_only_looks_are_of_the_curve_and_no_axis_falls(tmp_path):
    """Not what an evaluator says again of a policy that it has taken up, though nobody confirmed its score;
    and a learner that counts on from an earlier checkpoint takes nothing back.
    """
    journal = Journal(tmp_path / "metrics.jsonl")
    for t_s, env_steps in enumerate((0, 1000, 2000, 3000, 100, 2900, 4000)):
        counts = {"env_steps": env_steps, "trained_transitions": 8 * env_steps}
        journal.write("status", t_s, {**counts, "core_s": 1.0})
    for t_s, more in ((1.5, {}), (2.5, {"rescored": 0}), (3.0, {"confirmed": True}), (4.5, {}), (6.0, {})):
        look = {"env_steps": 1000 * t_s if t_s != 4.5 else 1500, "mean_return": t_s, "best": True, **more}
        journal.write("evaluation", t_s, look)
    journal.close()
    curve = read_curve(tmp_path)
    assert curve.mean_return.tolist() == [1.5, 4.5, 6.0]
    assert curve.x["trained_transitions"].tolist() == [12_000, 12_000, 32_000]


@pytest.mark.parametrize("env_steps", [(0, 0, 0, 500), (500, 500, 500, 500), (500, 900, 900, 900)])
def test_what_is_trained_on_while_nothing_is_sampled_goes_on_in_the_curve(tmp_path, env_steps):
    """On data alone, before or after a time with samplers that the same curve has."""
    journal = Journal(tmp_path / "metrics.jsonl")
    for t_s, steps in enumerate(env_steps):
        counts = {"env_steps": steps, "trained_transitions": 800 * (1 + t_s), "core_s": 1.0}
        journal.write("status", float(t_s), counts)
        journal.write("evaluation", float(t_s), {"env_steps": steps, "mean_return": 1.0})
    journal.close()
    assert read_curve(tmp_path).x["trained_transitions"].tolist() == [800, 1600, 2400, 3200]


def test_a_run_that_did_not_count_core_seconds_has_no_such_axis(tmp_path):
    """Nor has one that goes on from such a run; its other axes are as ever."""
    journal_of(tmp_path, None, 0.5, 2.5)
    found = read_curve(tmp_path)
    assert np.isnan(found.x["core_s"]).all()
    assert join([found, found], "core_s") is None
    assert join([found, found], "wall_s") is not None


def test_an_evaluation_that_is_not_whole_is_no_point(tmp_path):
    """A journal may be anybody's; one without any whole evaluation has no curve, and says so."""
    path = tmp_path / "metrics.jsonl"
    odd = [{}, {"env_steps": 5}, {"mean_return": 1.0}, {"env_steps": [], "mean_return": 1.0}]
    odd += [{"env_steps": 10**400, "mean_return": 1.0}, {"env_steps": 5, "mean_return": None}]
    path.write_text("".join(json.dumps({**look, "t_s": 1.0, "kind": "evaluation"}) + "\n" for look in odd))
    with pytest.raises(InputError, match="no evaluation in its journal has t_s, env_steps and mean_return"):
        read_curve(tmp_path)
    Journal(path).write("evaluation", 2.0, {"env_steps": 200, "mean_return": 7.0})
    assert read_curve(tmp_path).mean_return.tolist() == [7.0]
