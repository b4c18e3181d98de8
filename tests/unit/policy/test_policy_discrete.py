"""Counted actions: probabilities, values and exploration against hand-computed numbers and against torch."""

import math

import numpy as np
import pytest
import torch
from examples import giving, rows
from torch import distributions

from spreeze_zmq.base.errors import WireError

LOGITS = [0.5, -1.0, 2.0]
GREEDY = {
    "kind": "epsilon_greedy",
    "num_actions": 3,
    "epsilon": 0.4,
    "spread": 0.0,
    "atoms": 1,
    "v_min": 0.0,
    "v_max": 0.0,
}


def rng():
    """The same in every call."""
    return np.random.default_rng(3)


def test_a_categorical_draws_by_the_softmax_of_its_logits():
    """Each action as often as torch says, with torch's log probability."""
    action, log_prob = giving(LOGITS, {"kind": "categorical", "sizes": [3]}).act(
        rows(60_000), rng(), log_prob=True
    )
    expected = distributions.Categorical(logits=torch.tensor(LOGITS))
    assert action.dtype == np.int64
    assert action.shape == (60_000,)
    np.testing.assert_allclose(np.bincount(action) / 60_000, expected.probs, atol=0.006)
    np.testing.assert_allclose(log_prob, expected.log_prob(torch.from_numpy(action)), atol=1e-6)


def test_the_probabilities_of_a_categorical_by_hand():
    """Logits log 1, log 2, log 5: the log of 1/8, 2/8 and 5/8."""
    logits = [0.0, math.log(2.0), math.log(5.0)]
    action, log_prob = giving(logits, {"kind": "categorical", "sizes": [3]}).act(
        rows(100), rng(), log_prob=True
    )
    np.testing.assert_allclose(np.exp(log_prob), np.array([0.125, 0.25, 0.625])[action], rtol=1e-5)
    assert set(action.tolist()) == {0, 1, 2}


def test_several_choices_are_independent():
    """[N, 2]; the log probability is the sum."""
    logits = [1.0, 0.0, 0.5, -1.0, 2.0]
    policy = giving(logits, {"kind": "categorical", "sizes": [2, 3]})
    action, log_prob = policy.act(rows(60_000), rng(), log_prob=True)
    first, second = (
        distributions.Categorical(logits=torch.tensor(part)) for part in (logits[:2], logits[2:])
    )
    assert action.shape == (60_000, 2)
    assert action.dtype == np.int64
    joint = np.bincount(action[:, 0] * 3 + action[:, 1]).reshape(2, 3) / 60_000
    np.testing.assert_allclose(joint, np.outer(first.probs, second.probs), atol=0.006)
    chosen = torch.from_numpy(action)
    np.testing.assert_allclose(
        log_prob, first.log_prob(chosen[:, 0]) + second.log_prob(chosen[:, 1]), atol=1e-5
    )
    assert policy.mode(rows(2)).tolist() == [[0, 2], [0, 2]]
    assert np.array_equal(policy.env_action(action), action)


def test_an_impossible_action_is_never_drawn():
    """A logit 200 below the others has the probability 0 in float32; no draw has the log probability -inf."""
    policy = giving([0.0, -200.0, 0.0], {"kind": "categorical", "sizes": [3]})
    action, log_prob = policy.act(rows(20_000), rng(), log_prob=True)
    assert set(action.tolist()) == {0, 2}
    np.testing.assert_allclose(log_prob, -math.log(2.0), rtol=1e-6)


def test_logits_of_any_size_keep_their_differences():
    """Softmax does not overflow."""
    _, log_prob = giving([1000.0, 1000.0], {"kind": "categorical", "sizes": [2]}).act(
        rows(4), rng(), log_prob=True
    )
    np.testing.assert_allclose(log_prob, -math.log(2.0), rtol=1e-6)


@pytest.mark.parametrize("sizes", [[3], [2, 3]])
def test_version_zero_of_choices_is_uniform(sizes):
    """Each action alike, whatever the network says."""
    output = np.arange(sum(sizes)) * 50.0
    policy = giving(output, {"kind": "categorical", "sizes": sizes}, version=0)
    action, log_prob = policy.act(rows(60_000), rng(), log_prob=True)
    action = action.reshape(60_000, -1)
    for k, size in enumerate(sizes):
        np.testing.assert_allclose(np.bincount(action[:, k]) / 60_000, 1 / size, atol=0.006)
    np.testing.assert_allclose(log_prob, -math.log(math.prod(sizes)), rtol=1e-6)


def test_the_best_value_is_taken_and_of_equals_the_first():
    """Deterministically."""
    assert giving([0.0, 3.0, -1.0], GREEDY).mode(rows(2)).tolist() == [1, 1]
    assert giving([2.0, 0.0, 2.0], GREEDY).mode(rows(1)).tolist() == [0]


def test_epsilon_of_the_draws_are_any_action():
    """0.4 / 3 for each of the others, 0.6 + 0.4 / 3 for the best, and that is what log_prob says."""
    action, log_prob = giving([0.0, 3.0, -1.0], GREEDY).act(rows(60_000), rng(), log_prob=True)
    probabilities = np.array([0.4 / 3, 0.6 + 0.4 / 3, 0.4 / 3])
    assert action.dtype == np.int64
    np.testing.assert_allclose(np.bincount(action) / 60_000, probabilities, atol=0.006)
    np.testing.assert_allclose(np.exp(log_prob), probabilities[action], rtol=1e-5)


def test_epsilon_falls_over_the_places_as_in_ape_x():
    """0.4 ** (1 + 7 i / (N - 1)): 0.4, 0.4 ** 4.5 and 0.4 ** 8."""
    policy = giving([0.0, 3.0, -1.0], {**GREEDY, "spread": 7.0})
    place = np.repeat(np.array([0.0, 0.5, 1.0], np.float32), 40_000)
    action, _ = policy.act(rows(120_000), rng(), place=place)
    others = (action.reshape(3, 40_000) != 1).mean(1)
    epsilon = np.array([0.4, 0.0161908, 0.00065536])
    assert (np.abs(others - epsilon * 2 / 3) < [0.006, 0.002, 0.0004]).all()
    by_default, _ = policy.act(rows(3), rng())
    spread, _ = policy.act(rows(3), rng(), place=np.array([1 / 6, 0.5, 5 / 6], np.float32))
    assert by_default.tolist() == spread.tolist()


def test_without_epsilon_it_is_greedy():
    """Every draw is the best action, of log probability 0."""
    action, log_prob = giving([0.0, 3.0, -1.0], {**GREEDY, "epsilon": 0.0, "spread": 7.0}).act(
        rows(1000), rng(), log_prob=True
    )
    assert set(action.tolist()) == {1}
    assert set(log_prob.tolist()) == {0.0}


def test_the_value_of_atoms_is_their_expectation():
    """Of atoms -2, 0, 2: action 0 is -2 for certain, action 1 is 2 or -2 with 3 to 1, action 2 is 0."""
    about = {**GREEDY, "epsilon": 0.0, "atoms": 3, "v_min": -2.0, "v_max": 2.0}
    output = [50.0, 0.0, 0.0, 0.0, -50.0, math.log(3.0), 0.0, 50.0, 0.0]
    policy = giving(output, about)
    assert policy.mode(rows(1)).tolist() == [1]
    values = policy.actor.values(np.array([output], np.float32))
    np.testing.assert_allclose(values, [[-2.0, 1.0, 0.0]], atol=1e-5)
    support = torch.linspace(-2.0, 2.0, 3)
    expected = (torch.tensor(output).reshape(3, 3).softmax(1) * support).sum(1)
    np.testing.assert_allclose(values[0], expected, atol=1e-6)


def test_version_zero_of_values_is_uniform():
    """Each action alike."""
    action, log_prob = giving([0.0, 3.0, -1.0], GREEDY, version=0).act(rows(60_000), rng(), log_prob=True)
    np.testing.assert_allclose(np.bincount(action) / 60_000, 1 / 3, atol=0.006)
    np.testing.assert_allclose(log_prob, -math.log(3.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"epsilon": 1.5}, "epsilon 1.5 is not within 0 to 1"),
        ({"spread": -1.0}, "spread -1.0 is below 0"),
        ({"num_actions": 4}, "the last layer gives 3 numbers, 4 actions of 1 atoms take 4"),
        ({"num_actions": 2**60, "atoms": 2**60}, "the last layer gives 3 numbers"),
        ({"atoms": 0}, "atoms is 0, expected an integer of at least 1"),
        ({"epsilon": "half"}, "epsilon is 'half', expected a finite number"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"kind": "categorical", "sizes": [2]}, "the last layer gives 3 numbers, the distribution takes 2"),
        ({"kind": "categorical", "sizes": []}, "sizes is"),
        ({"kind": "categorical", "sizes": [3, 0]}, "sizes is 0"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(change, problem):
    """In words that say what was expected."""
    with pytest.raises(WireError, match=problem) as caught:
        giving([0.0, 3.0, -1.0], {**GREEDY, **change})
    assert caught.value.reason == "bad_policy"
