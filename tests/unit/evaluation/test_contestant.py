"""A policy and every episode that counts for it, in memory and in its file."""

from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.evaluation.contestant import Contestant
from spreeze_zmq.evaluation.evaluation import MAX_INFO, Score
from spreeze_zmq.policy import Policy


@pytest.fixture
def one():
    """An untrained policy for Pendulum without an episode."""
    algorithm = algorithms.get("sac")
    half = algorithms.make(
        "policy", algorithm, algorithm.Options(hidden_sizes=(8,)), envs.probe("Pendulum-v1", {}), "cpu", 1
    )
    fields = {"version": 7, "description": half.description(), "extras": {"env_steps": 9}}
    return Contestant(Policy.from_message(fields, half.policy_arrays()), seed=100, fresh=False)


def episodes(*returns, timed_out=False, **info):
    """A score of these returns."""
    num = len(returns)
    cut = np.full(num, timed_out)
    return Score(np.array(returns, np.float64), np.full(num, 200), np.arange(num), cut, timed_out, info)


def test_further_episodes_count_with_the_earlier_ones(one):
    """The mean is of all, and so is the info; the next one has the next seed."""
    assert one.take(episodes(1.0, 2.0, is_success=0.0), 0.5)
    assert one.next_seed == 102
    assert one.take(episodes(6.0, is_success=1.0, force=4.0), 0.5)
    about = one.fields(best=True)
    assert (about["mean_return"], about["num_episodes"], about["seed"], about["wall_s"]) == (3.0, 3, 100, 1.0)
    assert about["info"] == {"is_success": pytest.approx(1 / 3), "force": 4.0}
    assert not about["confirmed"]  # it was not chosen before them


def test_a_figure_that_few_episodes_have_weighs_by_these(one):
    """Of three and of two episodes one each: their mean, as if all had been played at once."""
    for returns, time_to_goal in (((1.0, 2.0, 3.0), 10.0), ((4.0, 5.0), 20.0)):
        score = replace(episodes(*returns, time_to_goal=time_to_goal), info_counts={"time_to_goal": 1})
        assert one.take(score, 0.5)
    assert one.fields(best=True)["info"] == {"time_to_goal": 15.0}
    assert one.score.info_counts == {"time_to_goal": 2}


def test_episodes_that_time_cut_do_not_join_whole_ones(one):
    """They are left out, and who asked for them is told so."""
    assert one.take(episodes(1.0), 0.5)
    cut = episodes(-50.0, -60.0, timed_out=True)
    assert cut.fields().keys().isdisjoint({"interval_low", "interval_high"})
    assert not one.take(cut, 0.5)
    assert (one.mean_return, one.compares, one.wall_s, one.played) == (1.0, True, 0.5, (1, 0.5))


def test_a_file_keeps_every_episode(one, tmp_path):
    """What is read counts on where it was saved."""
    one.take(replace(episodes(1.0, 2.5, is_success=0.5), num_failed=3), 0.5)
    path = tmp_path / "policy.safetensors"
    one.save(path, envs.probe("Pendulum-v1", {}), None)
    again = Contestant.read(path)
    assert again.fields(best=True) == one.fields(best=True)
    assert np.array_equal(again.returns, one.returns)
    assert not again.score.is_one
    assert not again.compares


def test_a_file_keeps_that_its_episodes_were_one(one, tmp_path):
    """What is played after it was read may show that they were not."""
    one.take(replace(episodes(1.0, 1.0), starts=np.full(2, 77)), 0.5)
    path = tmp_path / "policy.safetensors"
    one.save(path, envs.probe("Pendulum-v1", {}), None)
    again = Contestant.read(path)
    assert again.score.is_one
    again.take(replace(episodes(1.0), starts=np.full(1, 78)), 0.5)
    assert not again.score.is_one


def test_a_figure_that_few_episodes_have_weighs_by_these_after_the_file_was_read_too(one, tmp_path):
    """Two of thirty had it, then all of five. A file of an earlier version does not say how many."""
    path, later = tmp_path / "policy.safetensors", episodes(*[1.0] * 5, time_to_goal=10.0)
    score = replace(episodes(*[1.0] * 30, time_to_goal=5.0), info_counts={"time_to_goal": 2})
    one.take(score, 0.5)
    one.save(path, envs.probe("Pendulum-v1", {}), None)
    again = Contestant.read(path)
    again.take(later, 0.5)
    assert again.fields(best=True)["info"] == {"time_to_goal": pytest.approx((2 * 5 + 5 * 10) / 7)}
    saved = Policy.load(path)
    saved.save(path, {key: text for key, text in saved.metadata.items() if key != "info_counts"})
    earlier = Contestant.read(path)
    earlier.take(later, 0.5)
    assert earlier.fields(best=True)["info"] == {"time_to_goal": pytest.approx((30 * 5 + 5 * 10) / 35)}


def test_figures_that_each_episode_names_anew_do_not_pile_up(one, tmp_path):
    """Those of a traffic's vehicles: the first names stay, so that its report fits in a message and its file
    is read again; so is one of an earlier version, which had more.
    """
    path, spec = tmp_path / "policy.safetensors", envs.probe("Pendulum-v1", {})
    figures = {f"vehicle_{number}/seconds_of_waiting": float(number) for number in range(3_000)}
    for first in range(0, 3_000, 50):
        names = list(figures)[first : first + 50]
        one.take(episodes(1.0, crashed=float(first == 0), **{name: figures[name] for name in names}), 0.5)
    kept = {"crashed": pytest.approx(1 / 60), **dict(list(figures.items())[: MAX_INFO - 1])}
    assert one.fields(best=True)["info"] == kept
    one.save(path, spec, None)
    assert Contestant.read(path).fields(best=True) == one.fields(best=True)
    one.score = replace(one.score, info=figures, info_counts=dict.fromkeys(figures, 1))
    one.save(path, spec, None)
    again = Contestant.read(path)
    assert again.score.info == dict(list(figures.items())[:MAX_INFO])
    assert again.score.info_counts == dict.fromkeys(again.score.info, 1)


def test_a_file_of_an_earlier_version_says_how_many_episodes_must_be_played_again(one, tmp_path):
    """It has their number and seed. One that was never scored is none."""
    path = tmp_path / "policy.safetensors"
    about = {"mean_return": "3", "num_episodes": "30", "evaluation_seed": "5", "timed_out": "False"}
    one.policy.save(path, {**about, "confirmed": "True", "wall_s": "0.1"})
    again = Contestant.read(path)
    assert (again.num_unread, again.num_episodes, again.seed, again.fresh) == (30, 0, 5, True)
    one.policy.save(path, {})
    assert Contestant.read(path) is None
