"""DQN with a memory: targets and gradients of sequences against an unrolling by hand, what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.declared import Fields
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import AlgorithmError, InputError, InvalidEnvironment
from spreeze_zmq.learner.at_hand import random_batch_of, random_rollout
from spreeze_zmq.replay import replay_of
from tests.unit.algorithms.shipped import DISCRETE, MASKED, PIXELS, make, parameters

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS, ENVS, MEMORY, BURN_IN = 7, 3, 4, 2
SETTINGS = {
    "memory_size": MEMORY,
    "sequence_length": STEPS,
    "burn_in": BURN_IN,
    "batch_size": STEPS * ENVS,
    "hidden_sizes": (8,),
    "n_step": 2,
    "gamma": 0.9,
}


def rollout_of(env=DISCRETE):
    """Random, with a memory; one episode ends within the burn-in, one is cut and one ends behind it."""
    made = random_rollout(env, STEPS, ENVS, memory_size=MEMORY)
    rng = np.random.default_rng(5)
    terminated, truncated = np.zeros((2, STEPS, ENVS), bool)
    terminated[0, 0] = truncated[3, 1] = terminated[4, 2] = True
    ended = {"terminated": terminated, "truncated": truncated}
    index = np.argwhere(terminated | truncated).astype(np.int32)
    final_obs = rng.standard_normal((3, *env.obs_shape)).astype(np.float32)
    if env.action_mask:
        ended["final_action_mask"] = np.ones((3, env.num_choices), bool)
    memory = rng.uniform(-1, 1, (ENVS, MEMORY)).astype(np.float32)
    return dataclasses.replace(made, **ended, final_obs=final_obs, final_index=index, memory=memory)


def drawn(rollout, dqn, env=DISCRETE, **settings):
    """Each sequence of a rollout once, as a loss gets them, in order."""
    options = dataclasses.replace(dqn.options, learning_starts=1, replay_capacity=100)
    replay = replay_of(DQN.kept_fields("critic", options), env, options, "cpu", 0)
    replay.add(rollout)
    rows = replay.ring.take(torch.arange(ENVS))
    batch = vars(replay._batch(rows))
    whole = {"begins", "weight"}
    fields = {
        name: value if value is None or name in whole else value.flatten(0, 1)
        for name, value in batch.items()
    }
    return Fields(**{**fields, **settings})


def unrolled(network, rollout, env, steps):
    """Outputs of one environment's steps, and those at the observation that followed each, a step at a time:
    the memory is zeros where an episode begins; up to the burn-in without gradients.
    """
    memory = torch.from_numpy(rollout.memory[env : env + 1])
    ended = rollout.terminated | rollout.truncated
    finals = {tuple(index): row for index, row in zip(rollout.final_index, rollout.final_obs, strict=True)}
    outputs, following = [], []
    for t in range(steps):
        with torch.set_grad_enabled(t >= BURN_IN):
            if t and ended[t - 1, env]:
                memory = torch.zeros_like(memory)
            output, memory = network(torch.from_numpy(rollout.obs[t, env : env + 1]), memory)
        outputs.append(output[0])
        next_obs = finals.get((t, env), rollout.obs[t + 1, env])
        following.append(network(torch.from_numpy(next_obs)[None], memory)[0][0].detach())
    return outputs, following


def by_hand(dqn, rollout):
    """The mean of Huber's losses over the steps behind the burn-in, and the priority of each sequence."""
    losses, priorities = [], []
    ended = rollout.terminated | rollout.truncated
    for env in range(ENVS):
        outputs, following = unrolled(dqn.q, rollout, env, STEPS)
        _, targets = unrolled(dqn.target_q, rollout, env, STEPS)
        errors = []
        for t in range(BURN_IN, STEPS):
            last = t + 1 if t + 1 < STEPS and not ended[t, env] else t
            rewards = [0.9**k * rollout.reward[t + k, env] for k in range(last - t + 1)]
            discount = 0.0 if rollout.terminated[last, env] else 0.9 ** len(rewards)
            bootstrap = targets[last][following[last].argmax()].item()
            errors.append(outputs[t][rollout.action[t, env]] - (sum(rewards) + discount * bootstrap))
        losses += [0.5 * e**2 if abs(e) < 1 else abs(e) - 0.5 for e in errors]
        sizes = [abs(error.item()) for error in errors]
        priorities.append(0.9 * max(sizes) + 0.1 * sum(sizes) / len(sizes))
    return torch.stack(losses).mean(), priorities


def separate(**more):
    """With a target network of its own."""
    dqn, other = make(DQN, DISCRETE, **SETTINGS, **more), make(DQN, DISCRETE, seed=1, **SETTINGS)
    dqn.target_q.load_state_dict(other.q.state_dict())
    return dqn


def test_targets_and_gradients_are_those_of_a_plain_unrolling():
    """Double Q-learning of two-step returns, through episodes that end within the sequence; gradients go back
    to the end of the burn-in.
    """
    dqn, rollout = separate(), rollout_of()
    loss = dqn.critic_loss(drawn(rollout, dqn))
    expected, priorities = by_hand(dqn, rollout)
    torch.testing.assert_close(loss.loss, expected)
    assert loss.priorities.tolist() == pytest.approx(priorities, rel=1e-4)
    got, wanted = (torch.autograd.grad(each, parameters(dqn.q)) for each in (loss.loss, expected))
    torch.testing.assert_close(got, wanted)


def test_the_burn_in_changes_what_is_remembered_and_is_not_trained_on():
    """Without gradients into its observations; rewards of its steps count for nothing; its observations do,
    but not those of an episode that has ended since.
    """
    dqn, rollout = separate(), rollout_of()
    batch = drawn(rollout, dqn)
    batch.obs = batch.obs.clone().requires_grad_()
    before = dqn.critic_loss(batch).loss
    gradient = torch.autograd.grad(before, batch.obs)[0].view(STEPS, ENVS, -1)
    assert not gradient[:BURN_IN].any()
    assert gradient[BURN_IN:].any()
    other = drawn(rollout, dqn)
    other.reward[: BURN_IN * ENVS] += 5.0
    assert torch.equal(dqn.critic_loss(other).loss, before)
    other.obs[1] += 1.0  # of environment 1 at step 0
    assert not torch.equal(dqn.critic_loss(other).loss, before)
    other = drawn(rollout, dqn)
    other.obs[0] += 1.0  # of environment 0 at step 0, where its episode ends
    other.memory[0] += 1.0
    assert torch.equal(dqn.critic_loss(other).loss, before)


def test_the_products_may_be_rounded_to_bf16():
    """The memory itself stays float32."""
    dqn = make(DQN, DISCRETE, **SETTINGS)
    exact = dqn.critic_loss(drawn(rollout_of(), dqn)).loss
    with torch.autocast("cpu", torch.bfloat16):
        rounded = dqn.critic_loss(drawn(rollout_of(), dqn)).loss
    assert rounded.item() == pytest.approx(exact.item(), rel=0.1)
    assert rounded.item() != exact.item()


@pytest.mark.parametrize(
    "more", [{"dueling": True}, {"num_atoms": 5}, {"double": False}, {"burn_in": 0}], ids=str
)
def test_extensions_go_with_a_memory(more):
    """Each has a finite loss that trains all of the network, and a weight for each sequence."""
    settings = {**SETTINGS, **more}
    dqn = make(DQN, DISCRETE, **settings)
    batch = drawn(rollout_of(), dqn)
    plain = dqn.critic_loss(batch)
    plain.loss.backward()
    assert all(each.grad.abs().sum() > 0 for each in parameters(dqn.q))
    assert plain.priorities.shape == (ENVS,)
    weighed = dqn.critic_loss(drawn(rollout_of(), dqn, weight=torch.full((ENVS,), 2.0)))
    assert weighed.loss.item() == pytest.approx(2 * plain.loss.item(), rel=1e-5)


def test_illegal_actions_are_not_bootstrapped_from():
    """Other masks of the observations that follow give other targets."""
    dqn = make(DQN, MASKED, **{**SETTINGS, "n_step": 1})
    rollout = rollout_of(MASKED)
    batch = drawn(rollout, dqn, MASKED)
    free = dqn.critic_loss(batch).loss
    best = batch.next_action_mask.clone()
    best[:, 1:] = False
    best[:, 0] = True
    assert not torch.equal(dqn.critic_loss(batch._replace(next_action_mask=best)).loss, free)


REFUSED = {
    "burn_in": ({"burn_in": 7}, "burn_in = 7 leaves no step of sequence_length = 7 to train on: at most 6"),
    "n_step": ({"n_step": 6}, r"n_step = 6 is longer than the 5 steps of a sequence that are trained on"),
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
    assert batch.obs.shape == (STEPS, 32 // STEPS, 3)
