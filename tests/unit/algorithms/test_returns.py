"""Returns and advantages of rollouts, against numbers worked out by hand and the papers' sums."""

import numpy as np
import torch

from spreeze_zmq.algorithms.returns import vtrace


def columns(*rows):
    """Each list as one environment's column ``[T, 1]``."""
    return [torch.tensor(row, dtype=torch.float32).unsqueeze(1) for row in rows]


def steps(r_t, discount_t, continues_t, rho_tm1, v_t=(2.0, 3.0, 4.0)):
    """Three steps of one environment whose states are worth 1, 2 and 3."""
    return columns([1.0, 2.0, 3.0], v_t, r_t, discount_t, continues_t, rho_tm1)


def test_generalised_advantages_by_hand():
    """Temporal differences 1, 0.5 and 0; gamma lambda is a quarter."""
    targets, advantages = vtrace(*steps([1, 1, 1], [0.5] * 3, [1] * 3, [1] * 3), gae_lambda=0.5)
    assert advantages.flatten().tolist() == [1.125, 0.5, 0.0]
    assert targets.flatten().tolist() == [2.125, 2.5, 3.0]


def test_steps_of_another_policy_are_weighed_by_hand():
    """Ratios 2, 0.5 and 1, cut at 1: differences 1, 0.25 and 2, of which traces keep 1 and 0.5."""
    targets, advantages = vtrace(*steps([1, 1, 3], [0.5] * 3, [1] * 3, [2.0, 0.5, 1.0]))
    assert targets.flatten().tolist() == [2.375, 2.75, 5.0]
    assert advantages.flatten().tolist() == [1.375, 1.5, 2.0]


def test_traces_have_a_bound_of_their_own():
    """c_bar 0.5 halves what the first step hears of the second, rho_bar 2 doubles its own difference."""
    targets, _ = vtrace(*steps([1, 1, 3], [0.5] * 3, [1] * 3, [2.0, 0.5, 1.0]), rho_bar=2.0, c_bar=0.5)
    assert targets.flatten().tolist() == [1 + 2 * 1 + 0.5 * 0.5 * 0.75, 2.75, 5.0]


def test_truncation_bootstraps_and_ends_the_trace():
    """The second step ends an episode in a state worth 10: 1 + 5 - 2, and nothing of the third step."""
    targets, advantages = vtrace(*steps([1, 1, 3], [0.5] * 3, [1, 0, 1], [1] * 3, v_t=(2.0, 10.0, 4.0)))
    assert advantages.flatten().tolist() == [3.0, 4.0, 2.0]
    assert targets.flatten().tolist() == [4.0, 6.0, 5.0]


def test_termination_has_no_value_and_ends_the_trace():
    """The same, but the state at its end is worth nothing: 1 - 2."""
    moved = steps([1, 1, 3], [0.5, 0.0, 0.5], [1, 0, 1], [1] * 3, v_t=(2.0, 10.0, 4.0))
    targets, advantages = vtrace(*moved)
    assert advantages.flatten().tolist() == [0.5, -1.0, 2.0]
    assert targets.flatten().tolist() == [1.5, 1.0, 5.0]


def test_targets_are_the_sum_of_the_paper():
    """Equation 1 of arXiv 1802.01561, with its products written out, for several environments and ends."""
    rng = np.random.default_rng(0)
    num_steps, num_envs, gae_lambda, rho_bar, c_bar = 7, 4, 0.8, 1.3, 0.9
    v_tm1, v_t, r_t = rng.normal(size=(3, num_steps, num_envs))
    rho = np.exp(rng.normal(size=(num_steps, num_envs)))
    ended = rng.random((num_steps, num_envs)) < 0.3
    discount = 0.9 * (~ended | (rng.random(ended.shape) < 0.5))
    v_t[:-1] = np.where(ended[:-1], v_t[:-1], v_tm1[1:])
    expected = np.array(v_tm1)
    for s, n in np.ndindex(num_steps, num_envs):
        weight = 1.0
        for t in range(s, num_steps):
            delta = min(rho_bar, rho[t, n]) * (r_t[t, n] + discount[t, n] * v_t[t, n] - v_tm1[t, n])
            expected[s, n] += weight * delta
            if ended[t, n]:
                break
            weight *= discount[t, n] * gae_lambda * min(c_bar, rho[t, n])
    tensors = [torch.from_numpy(array) for array in (v_tm1, v_t, r_t, discount, ~ended * 1.0, rho)]
    targets, advantages = vtrace(*tensors, gae_lambda=gae_lambda, rho_bar=rho_bar, c_bar=c_bar)
    np.testing.assert_allclose(targets.numpy(), expected, rtol=1e-12)
    next_target = np.where(ended, v_t, np.concatenate((expected[1:], v_t[-1:])))
    bootstrap = gae_lambda * next_target + (1 - gae_lambda) * v_t
    np.testing.assert_allclose(advantages.numpy(), r_t + discount * bootstrap - v_tm1, rtol=1e-9)
