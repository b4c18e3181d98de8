"""Episodes joined from rollouts, and what is kept of them with other goals, against numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest

from spreeze_zmq.algorithms import ReplayOptions
from spreeze_zmq.algorithms.algorithm import TRANSITION_FIELDS
from spreeze_zmq.algorithms.options import LARGEST_RETURN
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.envs.goals import GoalPlaces
from spreeze_zmq.replay import (
    Episode,
    Goals,
    Relabelling,
    Replay,
    Transitions,
    in_hindsight,
    misfit,
    replay_of,
)
from spreeze_zmq.replay.episodes import MOST_STEPS, EpisodeBuilder
from spreeze_zmq.replay.replays import n_step_returns
from tests.unit.replay.made import options, spec

#: Observations are (place reached, goal wanted).
PLACES = GoalPlaces(slice(0, 1), slice(1, 2))
WANTED = 50.0


class Line:
    """Pays 0 at the goal and -1 elsewhere; an episode may end at the goal."""

    def __init__(self, ends=False):
        self.ends = ends

    def reward(self, achieved, desired):
        """As the class says."""
        return (achieved == desired)[:, 0].astype(np.float32) - 1.0

    def terminated(self, achieved, desired):
        """As the class says."""
        return (achieved == desired)[:, 0]


def episode(length, terminated=False, goals=None, seed=0):
    """An episode whose place is 0, 1, 2, ... and that pays its step."""
    obs = np.stack([np.arange(length + 1.0), np.full(length + 1, WANTED)], 1).astype(np.float32)
    action = np.arange(length, dtype=np.float32)[:, None]
    rng = np.random.default_rng(seed)
    return Episode(obs, action, np.arange(length, dtype=np.float32), terminated, {}, goals, rng)


def rollout(obs, ends=(), sampler="sampler-0", produced=None, incarnation=1):
    """A rollout of observations ``[T + 1, N]`` and of (t, n, final observation, whether it terminated)."""
    obs = np.asarray(obs, np.float32)
    steps, envs = len(obs) - 1, obs.shape[1]
    terminated, truncated = np.zeros((2, steps, envs), bool)
    for t, n, _, terminal in ends:
        (terminated if terminal else truncated)[t, n] = True
    rows = np.stack([obs, np.full_like(obs, WANTED)], 2)
    final = np.array([[last, WANTED] for _, _, last, _ in ends], np.float32).reshape(-1, 2)
    return Rollout(
        sampler=sampler,
        incarnation=incarnation,
        sequence=0,
        produced=steps * envs if produced is None else produced,
        policy_version=1,
        num_steps=steps,
        num_envs=envs,
        obs=rows,
        action=obs[:-1, :, None],
        reward=obs[:-1],
        terminated=terminated,
        truncated=truncated,
        final_obs=final,
        final_index=np.array([(t, n) for t, n, _, _ in ends], np.int32).reshape(-1, 2),
        log_prob=-obs[:-1],
    )


def places(found):
    """The places that episodes went through, and whether they terminated."""
    return [(each.obs[:, 0].tolist(), each.terminated) for each in found]


# --- episodes


def test_episodes_go_on_from_one_rollout_to_the_next():
    """Each environment's apart; the last observation is the true final one."""
    episodes = EpisodeBuilder()
    first = rollout([[0, 100], [1, 101], [20, 102]], [(1, 0, 2, True)])
    assert places(episodes.ended(first)) == [([0, 1, 2], True)]
    second = rollout([[20, 102], [21, 103], [30, 200]], [(1, 0, 22, False), (1, 1, 104, False)], produced=8)
    found = list(episodes.ended(second))
    assert places(found) == [([20, 21, 22], False), ([100, 101, 102, 103, 104], False)]
    assert found[1].action[:, 0].tolist() == found[1].reward.tolist() == [100, 101, 102, 103]


def test_two_samplers_have_episodes_of_their_own():
    """Their rollouts come in any order."""
    episodes = EpisodeBuilder(("log_prob",))
    assert not list(episodes.ended(rollout([[0], [1]])))
    assert not list(episodes.ended(rollout([[100], [101]], sampler="sampler-1")))
    [found] = episodes.ended(rollout([[1], [9]], [(0, 0, 2, True)], produced=2))
    assert places([found]) == [([0, 1, 2], True)]
    assert found.more["log_prob"].tolist() == [0, -1]


@pytest.mark.parametrize("gap", [{"produced": 3}, {"produced": 2, "incarnation": 2}])
def test_an_episode_begins_after_what_is_lost(gap):
    """A lost rollout and another life of the sampler leave the steps that come after them."""
    episodes = EpisodeBuilder()
    assert not list(episodes.ended(rollout([[0], [1]])))
    assert places(episodes.ended(rollout([[5], [9]], [(0, 0, 6, True)], **gap))) == [([5, 6], True)]


def test_episodes_go_on_with_a_sampler_that_goes_on_in_another_process():
    """Its first rollout follows the last one of the process before; steps that no episode needs are gone."""
    first, second = EpisodeBuilder(("log_prob",)), EpisodeBuilder(("log_prob",))
    assert len(list(first.ended(rollout([[7, 100], [0, 101], [1, 102]], [(0, 0, 8, True)])))) == 1
    second.restore(first.state())
    found = list(second.ended(rollout([[1, 102], [9, 103]], [(0, 0, 2, True)], incarnation=5)))
    assert places(found) == [([0, 1, 2], True)]
    assert found[0].more["log_prob"].tolist() == [0, -1]
    [found] = second.ended(rollout([[9, 103], [10, 200]], [(0, 1, 104, False)], produced=4, incarnation=5))
    assert places([found]) == [([100, 101, 102, 103, 104], False)]


def test_an_endless_episode_comes_in_parts():
    """So that what is kept of it has a bound."""
    episodes, step, found = EpisodeBuilder(), 500, []
    for number in range(2 * MOST_STEPS // step):
        obs = np.arange(number * step, (number + 1) * step + 1)[:, None]
        found += episodes.ended(rollout(obs, produced=(number + 1) * step))
    assert [len(each) for each in found] == [MOST_STEPS, MOST_STEPS]
    assert found[1].obs[[0, -1], 0].tolist() == [MOST_STEPS, 2 * MOST_STEPS]


# --- transitions


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("terminated", [True, False])
def test_returns_of_an_episode_are_those_of_its_rollout(n_step, terminated):
    """Sums, discounts and what follows, as the replay has them without relabelling."""
    whole = episode(5, terminated)
    batch = Transitions.of(whole, n_step)
    ends = np.zeros((5, 1), bool)
    ends[-1] = terminated
    expected = n_step_returns(whole.reward[:, None], ends, np.zeros_like(ends), 0.9, n_step)
    returns, discount = batch.summed(0.9)
    np.testing.assert_allclose(returns, expected[0][:, 0], rtol=1e-6)
    np.testing.assert_array_equal(discount, expected[1][:, 0])
    np.testing.assert_array_equal(batch.next_obs, whole.obs[expected[2][:, 0] + 1])


def test_rewards_after_a_termination_do_not_count():
    """Those of a goal that is reached within the n steps."""
    batch = Transitions.of(episode(4), 3)
    ends = np.zeros_like(batch.terminated)
    ends[0, 1] = True
    returns, discount = batch._replace(reward=np.ones((4, 3), np.float32), terminated=ends).summed(0.5)
    assert returns.tolist() == [1.5, 1.75, 1.5, 1.0]
    assert discount.tolist() == [0.0, 0.125, 0.25, 0.5]


# --- goals


@pytest.mark.parametrize(
    ("strategy", "chosen"),
    [("final", {0: {3}, 1: {3}, 2: {3}}), ("future", {0: {1, 2, 3}, 1: {2, 3}, 2: {3}})],
)
def test_goals_are_those_of_the_strategy(strategy, chosen):
    """The end of the episode, or any later step; both observations have the new goal, and the old place."""
    whole = episode(3, goals=Goals(PLACES, Line()))
    found = in_hindsight(Transitions.of(whole, 1), whole, strategy, 50)
    assert len(found) == 150
    for step, goals in chosen.items():
        mine = found.rows(found.obs[:, 0] == step)
        assert set(mine.obs[:, 1]) == goals
    assert (found.obs[:, 1] == found.next_obs[:, 1]).all()
    assert (found.next_obs[:, 0] == found.obs[:, 0] + 1).all()
    np.testing.assert_array_equal(found.reward[:, 0], (found.next_obs[:, 0] == found.obs[:, 1]) - 1.0)


def test_any_step_of_the_episode_and_of_the_replay():
    """`episode` takes earlier steps too, `random` what was drawn from the replay."""
    whole = episode(3, goals=Goals(PLACES, Line()))
    found = in_hindsight(Transitions.of(whole, 1), whole, "episode", 50)
    assert {(row[0], row[1]) for row in found.obs} == {(a, b) for a in (0, 1, 2) for b in (1, 2, 3)}
    replay = Replay(spec((2,)), options(100, gamma=0.9))
    replay.relabel_by(relabelling("random", 3))
    replay.add(rollout([[40], [41]], produced=1))
    replay.add(rollout([[41], [9]], [(0, 0, 42, True)], produced=2))
    assert set(drawn(replay).obs[:, 1].tolist()) <= {40.0, 41.0, WANTED}


def test_rewards_within_the_steps_are_those_of_the_new_goal():
    """Of three steps to the goal 3: -1, -1, 0; a longer way has none at the goal."""
    whole = episode(5, goals=Goals(PLACES, Line()))
    batch = Transitions.of(whole, 3)
    found = Goals(PLACES, Line()).relabelled(batch, whole, np.full((5, 1), 3.0, np.float32))
    assert found.reward[:3].tolist() == [[-1, -1, 0], [-1, 0, -1], [0, -1, -1]]
    returns, discount = found.summed(0.5)
    assert returns[:3].tolist() == [-1.5, -1.25, -0.75]
    assert discount[0] == 0.125
    assert found.next_obs[0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("last", "stays"), [(WANTED, False), (3.0, True)])
def test_what_ends_an_episode_ends_it_with_another_goal_if_it_was_not_the_goal(last, stays):
    """An end at the wanted goal is none with another goal; a fall is one with any."""
    goals = Goals(PLACES, Line(ends=True))
    whole = episode(3, terminated=True, goals=goals)
    whole.obs[-1, 0] = last
    found = goals.relabelled(Transitions.of(whole, 2), whole, np.full((3, 1), 2.0, np.float32))
    assert found.terminated[:, 0].tolist() == [False, True, stays]
    assert found.summed(0.5)[1].tolist() == [0.0, 0.0, 0.0 if stays else 0.5]


# --- the replay


def relabelling(strategy, num_goals, rewards=None):
    """Hindsight of a strategy."""

    def relabel(batch, whole):
        return in_hindsight(batch, whole, strategy, num_goals)

    return Relabelling(relabel, Goals(PLACES, rewards or Line()), seed=1)


def drawn(replay, size=3000):
    """A batch that has all transitions in it."""
    return replay.sample(size)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_replay_keeps_transitions_once_and_with_goals_of_their_future(prioritized):
    """As they came when the rollout comes, relabelled when the episode has ended."""
    kind = {"prioritized": prioritized, "n_step": 2}
    fields = ("obs", "action", "log_prob")
    replay = replay_of(fields, spec((2,)), options(100, **kind), "cpu", 0)
    replay.relabel_by(relabelling("future", 4))
    replay.add(rollout([[0], [1]], produced=1))
    assert len(replay) == 1
    replay.add(rollout([[1], [9]], [(0, 0, 2, True)], produced=2))
    assert len(replay) == 2 + 4 * 2
    batch = drawn(replay)
    assert set(batch.obs[:, 1].tolist()) == {1.0, 2.0, WANTED}
    assert batch.log_prob.tolist() == (-batch.obs[:, 0]).tolist()
    to_two = (batch.obs[:, 0] == 0) & (batch.obs[:, 1] == 2)
    np.testing.assert_allclose(batch.reward[to_two], -1.0)
    assert not batch.discount[to_two].any()


def test_what_other_goals_pay_counts_for_what_rewards_are_divided_by():
    """The only reward is one that no sampler has got: 1 at the goal, which becomes the largest return."""
    rewards = Line()
    rewards.reward = lambda achieved, desired: (achieved == desired)[:, 0].astype(np.float32)
    settings = options(100, normalize_rewards=True)
    replay = replay_of((*TRANSITION_FIELDS,), spec((2,)), settings, "cpu", 0)
    replay.relabel_by(relabelling("final", 1, rewards))
    paid_nothing = replace(rollout([[0], [1], [9]], [(1, 0, 2, False)]), reward=np.zeros((2, 1), np.float32))
    replay.add(paid_nothing)
    assert replay.scale.divisor == pytest.approx(1.0 / LARGEST_RETURN, rel=0.05)
    assert replay.sample(100).reward.max().item() == pytest.approx(LARGEST_RETURN, rel=0.05)


def test_returns_of_rows_begin_anew_with_each_copy_of_an_episode_and_after_an_end():
    """Of steps 0, 1, 2, 0, 1, the last but one of which ends; rewards of 0 only fade."""
    step, ones = np.array([[0], [1], [2], [0], [1]]), np.ones((5, 1), bool)
    arrays = dict.fromkeys(("obs", "action", "next_obs"), np.zeros((5, 1), np.float32))
    reward = np.array([[2.0], [0.0], [-4.0], [1.0], [3.0]], np.float32)
    rows = Transitions(**arrays, reward=reward, terminated=step == 0, step=step, counts=ones)
    np.testing.assert_allclose(rows.sizes(0.5), [2.0, 4.0, 1.0, 3.0])
    rows = replace(rows, terminated=~ones)
    np.testing.assert_allclose(rows.sizes(0.5), [2.0, 3.5, 1.0, 3.5])


def test_a_step_that_failed_reaches_no_goal():
    """It stays where it was, which is a goal that was reached, and is kept as it came alone: neither by
    itself nor behind another step does it pay what the goal does. One without any other step says nothing.
    """
    replay = Replay(spec((2,)), options(100, gamma=0.5, n_step=2))
    replay.relabel_by(relabelling("final", 1))
    replay.add(rollout([[0], [1], [2], [7], [9]], [(2, 0, 2, False), (3, 0, 7, False)]))
    batch = drawn(replay)
    rows = zip(batch.obs.tolist(), batch.reward.tolist(), batch.discount.tolist(), strict=True)
    found = {(*obs, reward, discount) for obs, reward, discount in rows}
    assert {row for row in found if row[1] != WANTED} == {(0.0, 2.0, -1.0, 0.25), (1.0, 2.0, 0.0, 0.5)}
    assert {row[0] for row in found if row[1] == WANTED} == {0.0, 1.0, 2.0, 7.0}


def test_a_replay_of_observations_needs_no_rewards():
    """The policy is trained on goals that were reached, too."""
    replay = replay_of(("obs",), spec((2,)), options(100), "cpu", 0)
    replay.relabel_by(Relabelling(relabelling("final", 2).relabel, Goals(PLACES, None), seed=1))
    replay.add(rollout([[0], [1], [9]], [(1, 0, 2, True)]))
    assert len(replay) == 2 + 2 * 2
    assert set(drawn(replay)[:, 1].tolist()) == {2.0, WANTED}


def test_action_masks_are_those_of_their_steps():
    """Also with other goals; where an end that is none with them forbids all actions, all are legal."""
    env = replace(spec((2,), action_shape=(), action_kind="discrete"), action_sizes=(2,), action_mask=True)
    ends = rollout([[0], [1], [9]], [(1, 0, WANTED, True)])
    masks = np.array([[[True, False]], [[False, True]], [[True, True]]])
    ends = replace(ends, action=np.zeros((2, 1), np.int64), action_mask=masks)
    ends = replace(ends, final_action_mask=np.zeros((1, 2), bool))
    replay = Replay(env, options(100))
    replay.relabel_by(
        Relabelling(lambda batch, _: batch._replace(terminated=batch.terminated & False), None, 1)
    )
    replay.add(ends)
    batch = drawn(replay)
    found = {
        (row[0], *mask, *following): discount
        for row, mask, following, discount in zip(
            batch.obs.tolist(),
            batch.action_mask.tolist(),
            batch.next_action_mask.tolist(),
            batch.discount.tolist(),
            strict=True,
        )
    }
    assert found == pytest.approx(
        {
            (0.0, True, False, False, True): 0.9,
            (1.0, False, True, False, False): 0.0,
            (1.0, False, True, True, True): 0.9,
        }
    )


def test_the_same_rollouts_are_relabelled_alike():
    """Also in a replay that has begun again from the number of episodes before."""
    ends = rollout([[0], [1], [2], [3]], [(2, 0, 3, True)])
    replays = [Replay(spec((2,)), options(100)) for _ in range(3)]
    for replay in replays:
        replay.relabel_by(relabelling("future", 4))
    for replay in replays[:2]:
        replay.add(ends)
        replay.add(ends)
    first, second = (replay.ring.looked_up("obs", np.arange(30) / 30) for replay in replays[:2])
    np.testing.assert_array_equal(first, second)
    replays[2].relabeller.num_episodes = 1
    replays[2].add(ends)
    np.testing.assert_array_equal(replays[2].ring.looked_up("obs", np.arange(15) / 15), first[15:])


def test_without_relabelling_a_replay_is_as_it_was():
    """No further columns, nothing beside the rollout's own transitions."""
    replay = replay_of(
        ("obs", "action"), spec((2,)), ReplayOptions(replay_capacity=100, learning_starts=1), "cpu", 0
    )
    replay.add(rollout([[0], [1], [9]], [(1, 0, 2, True)]))
    assert len(replay) == 2
    assert [column.name for column in replay.ring.columns] == [
        "obs",
        "action",
        "next_obs",
        "reward",
        "discount",
    ]
    assert type(drawn(replay)).__name__ == "Batch"
    assert not hasattr(drawn(replay), "log_prob")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward": np.zeros(3, np.float32)}, "reward of shape (3,), expected an array of shape (3, 1)"),
        ({"obs": np.zeros((3, 5), np.float32)}, "obs of shape (3, 5), expected an array of shape (3, 2)"),
        ({"reward": np.full((3, 1), np.nan, np.float32)}, "returned reward with nan at [0, 0]"),
        ({"action": [1, 2, 3]}, "returned action as a list"),
        ({"terminated": np.zeros((3, 1))}, "returned terminated of float64, expected bool"),
    ],
)
def test_what_does_not_fit_is_named(change, says):
    """In words that say what was expected."""
    batch = Transitions.of(episode(3), 1)
    assert (
        misfit(batch, batch) == misfit(batch, None) == misfit(batch, batch.rows(np.array([0, 0, 1, 2]))) == ""
    )
    assert says in misfit(batch, batch._replace(**change))
    assert "returned a dict, expected transitions" in misfit(batch, {})
