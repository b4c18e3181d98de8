"""What a learner says of the arithmetic of its updates."""

import logging

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.learner.arithmetic import arithmetic_of, flops_per_transition
from spreeze_zmq.learner.at_hand import random_batch_of, random_round
from spreeze_zmq.replay import Minibatches
from tests.unit.algorithms.shipped import BOX, DISCRETE, PIXELS

CASES = {
    "sac": ("sac", BOX, {}),
    "td3": ("td3", BOX, {}),
    "dqn": ("dqn", DISCRETE, {"prioritized": True}),
    "dqn_images": ("dqn", PIXELS, {"frame_stack": 2}),
    "ppo": ("ppo", BOX, {"normalize_observations": True}),
    "ppo_images": ("ppo", PIXELS, {"network": "small_cnn", "frame_stack": 2}),
    "pqn": ("pqn", DISCRETE, {}),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.thorough] * (case == "ppo_images")) for case in CASES],
)
@pytest.mark.parametrize("part", ["critic", "policy"])
def test_counting_leaves_no_trace(case, part):
    """Updates afterwards have the bits that they would have had."""
    name, env, changed = CASES[case]
    kind = algorithms.get(name)
    if part == "policy" and not kind.has_policy_loss():
        return
    options = kind.Options(**changed)
    weights = []
    for counts in (False, True):
        half = algorithms.make(part, kind, options, env, "cpu", 1)
        if counts:
            found = arithmetic_of(half, env, "cpu")
            assert found.flops_per_transition > 1000
            assert found.limit_flops_per_s > 1e8
        if kind.on_policy():
            made = random_round(env, 256, "cpu", options.frame_stack, kind.memory_size(options))
            batches = Minibatches(half.prepare(made), 1, 64).drawn(torch.Generator().manual_seed(1))
        else:
            batches = [random_batch_of(kind.fields_of(part), env, options, 64, "cpu")] * 3
        for batch in batches:
            half.update(batch)
        weights.append(torch.as_tensor(half.weights).clone())
    assert torch.equal(*weights)


def test_each_pass_of_a_value_network_is_counted():
    """DQN without double: values of both observations, and backward to all but the first layer's input."""
    kind = algorithms.get("dqn")
    options = kind.Options(hidden_sizes=(8, 16), double=False, dueling=False)
    half = algorithms.make("critic", kind, options, DISCRETE, "cpu", 1)
    one = 2 * (3 * 8 + 8 * 16 + 16 * 4)
    assert flops_per_transition(half, DISCRETE) == 4 * one - 2 * 3 * 8


def test_a_loss_that_fails_on_random_numbers_only_leaves_the_figure_out(caplog):
    """It says so in the log, and the half goes on as new."""
    kind = algorithms.get("dqn")
    options = kind.Options(hidden_sizes=(8,))
    half = algorithms.make("critic", kind, options, DISCRETE, "cpu", 1)
    before = half.weights.clone()

    def refuse(batch):
        raise ValueError("observations lie in 0..1")

    half._loss_of = refuse
    with caplog.at_level(logging.INFO, "spreeze"):
        found = arithmetic_of(half, DISCRETE, "cpu")
    assert found.flops_per_transition == 0.0
    assert "observations lie in 0..1" in caplog.text
    assert torch.equal(half.weights, before)
