"""When policies are evaluated, and what that costs."""

import numpy as np
import pytest

from spreeze_zmq.evaluation.budget import EvaluationBudget, rounds_in_time

EARLY, EARLY_S = EvaluationBudget.EARLY, EvaluationBudget.EARLY_S


def looks(budget, until_s, cost_s, training=lambda t: None, step_s=0.05):
    """The times of looks until ``until_s``, with the cost ``cost_s(t)`` and the training return
    ``training(t)``.
    """
    taken, now_s = [], 0.0
    while now_s < until_s:
        wait_s = budget.wait_s(now_s, training(now_s))
        if wait_s == 0:
            taken.append(now_s)
            budget.look(now_s, cost_s(now_s), 0.0, training(now_s))
        now_s += step_s
    return np.array(taken)


@pytest.mark.parametrize(
    ("left_s", "lengths", "rounds"),
    [
        (12.6, [10] * 9, 2),  # 6.25 seconds a round at most
        (12.4, [10] * 9, 1),
        (4.9, [10] * 9, 1),
        (0.0, [10] * 9, 0),
        (99.0, [10] * 9, 6),
        (13.4, [2, 2, 2, 2, 20], 0),  # 1.25 * (5 + 2 * 7.2 / 5.6 * sqrt(5))
        (13.5, [2, 2, 2, 2, 20], 1),
        (22.6, [2, 2, 2, 2, 20], 1),  # 1.25 * (10 + 2 * 7.2 / 5.6 * sqrt(10))
        (22.7, [2, 2, 2, 2, 20], 2),
    ],
)
def test_rounds_end_in_time_by_a_margin_of_a_quarter_and_two_deviations(left_s, lengths, rounds):
    """An episode takes a second in the mean. Those of one length are tried, as their cut chooses none."""
    assert rounds_in_time(left_s, 6, 5, 1.0, np.array(lengths)) == rounds


def test_looks_are_spread_evenly_at_their_share():
    """4 % of a core pays for a look of 0.4 s every ten seconds, and twice as often in the first minute."""
    taken = looks(EvaluationBudget(cores=0.04), 300, lambda t: 0.4)
    gaps = np.diff(taken)
    np.testing.assert_allclose(gaps[taken[1:] < EARLY_S], 10 / EARLY, atol=0.1)
    np.testing.assert_allclose(gaps[taken[:-1] > EARLY_S], 10, atol=0.1)


@pytest.mark.parametrize("seed", range(8))
def test_the_cost_stays_within_the_share_whatever_looks_cost(seed):
    """With costs that jump by a factor of 100 and training returns that wander. What is spent exceeds what
    was earned by at most the looks in advance and the last one; no gap is longer than these take to earn.
    """
    rng = np.random.default_rng(seed)
    budget = EvaluationBudget(cores=0.05, goal=50.0)
    costs = rng.choice([0.01, 0.1, 1.0], 10_000)
    returns = np.cumsum(rng.normal(0.02, 1.0, 10_000))
    taken = looks(budget, 400, lambda t: costs[int(t)], lambda t: returns[int(10 * t)])
    earned_s = 0.05 * (400 + (EARLY - 1) * EARLY_S)
    assert budget.spent_s <= earned_s + (EvaluationBudget.URGENT + 1) * 1.0
    assert np.diff(taken).max() <= (EvaluationBudget.URGENT + 1) * 1.0 / 0.05


def test_a_rising_training_return_is_worth_a_look_in_advance():
    """The return is flat for a minute and then rises: the next look is granted at once, and earned
    afterwards.
    """
    budget = EvaluationBudget(cores=0.01)
    for now_s, training in ((0.0, 10.0), (1.0, 0.0)):
        budget.wait_s(now_s, training)
    budget.look(70.0, 1.0, 0.0, training_return=5.0)
    budget.spent_s = 1.0 + 0.01 * (70 + (EARLY - 1) * EARLY_S)  # one look more than was earned
    assert budget.wait_s(71.0, 5.5) > 60
    assert budget.wait_s(71.0, 8.0) == 0
    budget.look(71.0, 1.0, 0.0, training_return=8.0)
    assert budget.wait_s(72.0, 8.1) > 100
    assert budget.wait_s(72.0, 20.0) > 60  # one had been granted


@pytest.mark.parametrize(("goal", "risen"), [(None, 1.0), (100.0, 10.0)])
def test_progress_is_measured_by_the_way_covered_or_to_the_goal(goal, risen):
    """A rise by a tenth of the range brings the next look forward: of 10 covered, or of 100 to cover."""
    budget = EvaluationBudget(cores=0.01, goal=goal)
    for training in (0.0, 10.0):
        budget.wait_s(0.0, training)
    budget.look(1.0, 1.0, -1000.0, training_return=10.0)
    assert budget.wait_s(2.0, 10.0 + 0.9 * risen) > 0
    assert budget.wait_s(2.0, 10.0 + 1.2 * risen) == 0


def test_a_goal_in_reach_is_worth_a_loan_but_no_ruin():
    """Looks are granted in advance when the training return reaches the goal, and earned afterwards."""
    budget = EvaluationBudget(cores=0.04, goal=100)
    budget.look(0.0, 0.4, 0.0, 99)
    assert budget.wait_s(0.0, training_return=99) > 0
    for _ in range(EvaluationBudget.URGENT):
        assert budget.wait_s(0.0, training_return=101) == 0
        budget.look(0.0, 0.4, 99.0, 101)
    assert budget.wait_s(0.0, training_return=101) == pytest.approx(10 / EARLY)


def test_the_goal_is_in_reach_when_training_has_risen_by_what_the_last_score_lacked():
    """A policy scores 60 of 100 where training returns 20: at 60 it may score 100. At 70 it scores 95, and
    75 is enough for the next; scores below training's returns do not put the goal out of reach.
    """
    budget = EvaluationBudget(cores=0.04, goal=100)
    budget.PROGRESS = np.inf  # the goal alone
    budget.look(0.0, 0.4, 60.0, None)
    assert budget.wait_s(0.0, None) > 0  # no episode of training has ended
    budget.look(0.0, 0.0, 60.0, 20)
    budget.look_s = 0.4
    assert budget.wait_s(0.0, training_return=20) > 0
    assert budget.wait_s(0.0, training_return=59) > 0
    assert budget.wait_s(0.0, training_return=60) == 0
    budget.look(0.0, 0.4, 95.0, 70)
    assert budget.wait_s(0.0, training_return=70) > 0
    assert budget.wait_s(0.0, training_return=74) > 0
    assert budget.wait_s(0.0, training_return=75) == 0
    budget.look(0.0, 0.4, 50.0, 75)
    assert budget.wait_s(0.0, training_return=99) > 0
    assert budget.wait_s(0.0, training_return=100) == 0


def test_fresh_episodes_are_paid_for_like_looks():
    """Fresh episodes after a look delay the next look."""
    budget = EvaluationBudget(cores=0.04)
    budget.look(0.0, 0.4, 0.0, None)
    before_s = budget.wait_s(1.0, None)
    budget.pay(2.4)
    assert budget.wait_s(1.0, None) == pytest.approx(before_s + 2.4 / (EARLY * 0.04))


def test_a_race_costs_at_most_what_looks_have_cost():
    """Ten looks pay for five rounds of two policies; when they are spent, for the one that always is, until
    further looks have made up for it.
    """
    budget = EvaluationBudget(cores=0.04)
    budget.look(0.0, 1.0, 0.0, None)
    assert budget.num_rounds == 1
    for _ in range(9):
        budget.look(0.0, 1.0, 0.0, None)
    assert budget.num_rounds == 5
    budget.pay(10.0)
    assert budget.num_rounds == 1
    for _ in range(4):
        budget.look(0.0, 1.0, 0.0, None)
    assert budget.num_rounds == 2


def test_looks_that_cost_nothing_leave_half_a_second():
    """If policies are published twenty times a second, one in ten is evaluated."""
    taken = looks(EvaluationBudget(cores=1.0), 10, lambda t: 0.0)
    assert np.diff(taken).min() >= EvaluationBudget.MIN_GAP_S - 1e-9


def test_hours_without_a_policy_are_not_paid_back_in_looks():
    """What the first minute earns is saved up, and no more; it goes on at its share from there."""
    budget = EvaluationBudget(cores=0.05)
    assert len(looks(budget, 30, lambda t: 0.1)) > 10
    taken, now_s = 0, 36_000.0
    for _ in range(12_000):
        if budget.wait_s(now_s, None) == 0:
            budget.look(now_s, 0.1, 0.0, None)
            taken += 1
        now_s += 0.1
    assert 1_200 * 0.05 / 0.1 <= taken <= (EARLY * EARLY_S + 1_200) * 0.05 / 0.1 + 1
