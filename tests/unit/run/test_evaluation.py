"""Playing whole episodes, and what evaluations may cost."""

import numpy as np
import pytest

from spreeze_zmq import algorithms, envs
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.evaluation import EvaluationBudget, play


@pytest.fixture
def policy():
    """An untrained policy for Pendulum."""
    algorithm = algorithms.get("sac")
    half = algorithms.make(
        "policy", algorithm, algorithm.Options(hidden_sizes=(16,)), envs.probe("Pendulum-v1", {}), "cpu", 1
    )
    fields = {"version": 1, "description": half.description(), "extras": half.extras()}
    return Policy.from_message(fields, half.policy_arrays())


def test_each_environment_plays_one_whole_episode(policy):
    """Pendulum's episodes have 200 steps; a score is the undiscounted sum of one and not of the next."""
    import gymnasium

    score = play(envs.make("Pendulum-v1", 3), policy, seed=5)
    assert score.lengths.tolist() == [200, 200, 200]
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=6)
    expected, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(policy.mode(obs[None])[0])
        expected, done = expected + reward, terminated or truncated
    assert score.returns[1] == pytest.approx(expected, rel=1e-4)


def test_the_same_seed_plays_the_same_episodes(policy):
    """That is what lets ``spreeze eval`` repeat a score."""
    scores = [play(envs.make("Pendulum-v1", 2), policy, seed).returns for seed in (1, 1, 2)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_an_evaluation_is_given_up_when_the_run_stops(policy):
    """After the first step that may not go on."""
    assert play(envs.make("Pendulum-v1", 2), policy, 1, go_on=lambda: False) is None


def test_evaluations_cost_their_share():
    """At 4 % of a core an evaluation of 0.4 s is paid for every ten seconds."""
    budget = EvaluationBudget(cores=0.04)
    assert budget.wait_s(0.0, None) == 0
    budget.pay(0.4, score=1.0)
    assert budget.wait_s(0.0, None) == pytest.approx(20)
    assert budget.wait_s(20.0, None) == 0
    budget.pay(0.4, score=1.0)
    assert budget.wait_s(20.0, None) == pytest.approx(10)


def test_a_goal_in_reach_is_worth_a_loan_but_no_ruin():
    """Four evaluations are lent when training says that the goal is reached; then they must be earned."""
    budget = EvaluationBudget(cores=0.04, goal=100)
    budget.pay(0.4, score=0.0)
    assert budget.wait_s(0.0, training_return=99) > 0
    for _ in range(3):
        assert budget.wait_s(0.0, training_return=101) == 0
        budget.pay(0.4, score=99.0)
    assert budget.wait_s(0.0, training_return=101) == pytest.approx(10)


def test_the_goal_is_in_reach_when_training_has_risen_by_what_the_last_score_lacked():
    """A policy scores 60 of 100 where training returns 20: at 60 it may score 100. At 70 it scores 95, and
    75 is enough for the next; scores below training's returns do not put the goal out of reach.
    """
    budget = EvaluationBudget(cores=0.04, goal=100)
    budget.pay(0.4, score=60.0)
    assert budget.wait_s(0.0, None) > 0  # no episode of training has ended
    assert budget.wait_s(0.0, training_return=20) > 0
    assert budget.wait_s(0.0, training_return=59) > 0
    assert budget.wait_s(0.0, training_return=60) == 0
    budget.pay(0.4, score=95.0)
    assert budget.wait_s(0.0, training_return=70) > 0
    assert budget.wait_s(0.0, training_return=74) > 0
    assert budget.wait_s(0.0, training_return=75) == 0
    budget.pay(0.4, score=50.0)
    assert budget.wait_s(0.0, training_return=99) > 0
    assert budget.wait_s(0.0, training_return=100) == 0
