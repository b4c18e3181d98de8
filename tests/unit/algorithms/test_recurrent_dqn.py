"""DQN with a memory: targets and gradients of sequences against an unrolling by hand, what it refuses."""

import dataclasses

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import AlgorithmError, InputError, InvalidEnvironment
from spreeze_zmq.learner.at_hand import random_batch_of
from tests.unit.algorithms.by_steps import (
    ENVS,
    SETTINGS,
    STEPS,
    drawn,
    next_obs_of,
    obs_of,
    priority,
    rollouts_of,
    two_steps,
    walked,
)
from tests.unit.algorithms.shipped import DISCRETE, MASKED, PIXELS, make, parameters

pytestmark = pytest.mark.usefixtures("one_thread")


def unrolled(network, rollouts, env):
    """Outputs of one environment's steps, and those at the observation that followed each."""
    rollout, (before, after) = rollouts[-1], walked(network, rollouts, env)
    outputs = [network(obs_of(rollout, t, env), before[t])[0][0] for t in range(STEPS)]
    with torch.no_grad():
        following = [network(next_obs_of(rollout, t, env), after[t])[0][0] for t in range(STEPS)]
    return outputs, following


def by_hand(dqn, rollouts):
    """The mean of Huber's losses over the steps of the last rollout, and the priority of each sequence."""
    losses, priorities, rollout = [], [], rollouts[-1]
    for env in range(ENVS):
        outputs, following = unrolled(dqn.q, rollouts, env)
        _, targets = unrolled(dqn.target_q, rollouts, env)
        errors = []
        for t in range(STEPS):
            reward, discount, last = two_steps(rollout, t, env)
            bootstrap = targets[last][following[last].argmax()].item()
            errors.append(outputs[t][rollout.action[t, env]] - (reward + discount * bootstrap))
        losses += [0.5 * e**2 if abs(e) < 1 else abs(e) - 0.5 for e in errors]
        priorities.append(priority([abs(error.item()) for error in errors]))
    return torch.stack(losses).mean(), priorities


def separate(**more):
    """With a target network of its own."""
    dqn, other = make(DQN, DISCRETE, **SETTINGS, **more), make(DQN, DISCRETE, seed=1, **SETTINGS)
    dqn.target_q.load_state_dict(other.q.state_dict())
    return dqn


@pytest.mark.parametrize("which", [slice(0, 2), slice(1, 2)], ids=["burn-in", "alone"])
def test_targets_and_gradients_are_those_of_a_plain_unrolling(which):
    """Double Q-learning of two-step returns, through episodes that end within the sequence; gradients go back
    to the end of the burn-in. A sequence without the one before begins with the stored memory.
    """
    dqn, rollouts = separate(), rollouts_of(DISCRETE)[which]
    loss = dqn.critic_loss(drawn(rollouts, dqn))
    expected, priorities = by_hand(dqn, rollouts)
    torch.testing.assert_close(loss.loss, expected)
    assert loss.priorities.tolist() == pytest.approx(priorities, rel=1e-4)
    got, wanted = (torch.autograd.grad(each, parameters(dqn.q)) for each in (loss.loss, expected))
    torch.testing.assert_close(got, wanted)


def test_the_burn_in_changes_what_is_remembered_and_is_not_trained_on():
    """Without gradients into its observations, which count, but not those of an episode that has ended since;
    every step after it is trained on.
    """
    dqn, rollouts = separate(), rollouts_of(DISCRETE)
    batch = drawn(rollouts, dqn)
    batch.obs = batch.obs.requires_grad_()
    before = dqn.critic_loss(batch).loss
    gradient = torch.autograd.grad(before, batch.obs)[0].view(2 * STEPS, ENVS, -1)
    assert not gradient[:STEPS].any()
    assert gradient[STEPS:].any(2).all()
    other = drawn(rollouts, dqn)
    other.obs[2] += 1.0  # of environment 2 at step 0
    assert not torch.equal(dqn.critic_loss(other).loss, before)
    other = drawn(rollouts, dqn)
    other.obs[:2] += 1.0  # of those whose episodes end
    other.earlier[:2] += 1.0
    other.memory += 1.0
    assert torch.equal(dqn.critic_loss(other).loss, before)


def test_the_products_may_be_rounded_to_bf16():
    """The memory itself stays float32."""
    dqn = make(DQN, DISCRETE, **SETTINGS)
    exact = dqn.critic_loss(drawn(rollouts_of(DISCRETE), dqn)).loss
    with torch.autocast("cpu", torch.bfloat16):
        rounded = dqn.critic_loss(drawn(rollouts_of(DISCRETE), dqn)).loss
    assert rounded.item() == pytest.approx(exact.item(), rel=0.1)
    assert rounded.item() != exact.item()


@pytest.mark.parametrize(
    "more", [{"dueling": True}, {"num_atoms": 5}, {"double": False}, {"burn_in": False}], ids=str
)
def test_extensions_go_with_a_memory(more):
    """Each has a finite loss that trains all of the network, and a weight for each sequence."""
    settings = {**SETTINGS, **more}
    dqn = make(DQN, DISCRETE, **settings)
    batch = drawn(rollouts_of(DISCRETE), dqn)
    plain = dqn.critic_loss(batch)
    plain.loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in parameters(dqn.q))
    assert plain.priorities.shape == (ENVS,)
    weighed = dqn.critic_loss(drawn(rollouts_of(DISCRETE), dqn, weight=torch.full((ENVS,), 2.0)))
    assert weighed.loss.item() == pytest.approx(2 * plain.loss.item(), rel=1e-5)


def test_illegal_actions_are_not_bootstrapped_from():
    """Other masks of the observations that follow give other targets."""
    dqn = make(DQN, MASKED, **{**SETTINGS, "n_step": 1})
    batch = drawn(rollouts_of(MASKED), dqn)
    free = dqn.critic_loss(batch).loss
    best = batch.next_action_mask.clone()
    best[:, 1:] = False
    best[:, 0] = True
    assert not torch.equal(dqn.critic_loss(batch._replace(next_action_mask=best)).loss, free)


REFUSED = {
    "n_step": ({"n_step": 8}, "n_step = 8 is longer than sequence_length = 7, beyond which no rewards are"),
    "batch_size": ({"batch_size": 20}, "batch_size = 20 is no whole number of sequences .* such as 14"),
    "auto": ({"batch_size": "auto"}, "batch_size = 'auto' is no whole number of sequences .* such as 7"),
    "frame_stack": ({"frame_stack": 2}, "a memory is for one observation at a time"),
    "hindsight": ({"hindsight": "future"}, 'hindsight = "future" keeps transitions by themselves'),
}


@pytest.mark.parametrize(("settings", "words"), REFUSED.values(), ids=REFUSED)
def test_options_that_do_not_go_with_sequences_are_refused(settings, words):
    """One line each; without a memory they mean nothing."""
    with pytest.raises(InputError, match=words):
        DQN.Options(**{**SETTINGS, **settings})
    DQN.Options(**{**SETTINGS, **settings, "memory_size": 0})


class Relabels(DQN):
    """Keeps more than what came."""

    def relabel(self, batch, episode):
        """All of it once more."""
        return batch


def test_an_algorithm_whose_replay_cannot_keep_sequences_is_refused():
    """Before anything starts."""
    options = DQN.Options(**SETTINGS)
    with pytest.raises(
        AlgorithmError, match="relabel makes transitions by themselves, a memory needs sequences"
    ):
        algorithms.check(Relabels, options, DISCRETE)
    small = dataclasses.replace(PIXELS, obs_shape=(8, 8, 1))  # an mlp takes it
    for env in (PIXELS, small):
        with pytest.raises(InvalidEnvironment, match="memory_size is for vectors"):
            algorithms.check(DQN, DQN.Options(memory_size=4), env)


def test_a_random_batch_has_whole_sequences():
    """For measurements, of any batch size."""
    options = DQN.Options(**SETTINGS)
    batch = random_batch_of(DQN.kept_fields("critic", options), DISCRETE, options, 32, "cpu")
    assert batch.obs.shape == (2 * STEPS, 32 // STEPS, 3)
    assert batch.reward.shape == (STEPS, 32 // STEPS)
