"""SAC and TD3 with a memory: their losses against a plain loop over steps, the burn-in, what is refused."""

import dataclasses

import pytest
import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.discrete_sac import DiscreteSAC
from spreeze_zmq.algorithms.options import options_from
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.algorithms.td3 import TD3
from spreeze_zmq.algorithms.td3_bc import TD3BC
from spreeze_zmq.base.errors import InputError, InvalidEnvironment
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
from tests.unit.algorithms.shipped import BOX, make, parameters

pytestmark = pytest.mark.usefixtures("one_thread")

#: The options without which actions would be random.
KINDS = {SAC: {}, TD3: {"target_noise": 0.0}, TD3BC: {"target_noise": 0.0}}
PARTS = [(kind, part) for kind in KINDS for part in ("critic", "policy")]


def separate(kind, **more):
    """With targets of their own, and a policy whose actions differ; without noise."""
    settings = {**SETTINGS, **KINDS[kind], **more}
    algorithm, other = make(kind, BOX, **settings), make(kind, BOX, seed=1, **settings)
    with torch.no_grad():
        for policy in (algorithm.policy, other.policy):
            policy.head[-1].weight *= 100.0
    algorithm.target_critics.load_state_dict(other.critics.state_dict())
    if kind is not SAC:
        algorithm.target_policy.load_state_dict(other.policy.state_dict())
    algorithm.actions.noise = torch.zeros_like
    return algorithm


def chosen(algorithm, output):
    """The actions ``[1, A]`` of a policy's output, and the entropy's share in their value."""
    if not isinstance(algorithm, SAC):
        return algorithm.actions.mode(output), torch.zeros(1)
    action, log_prob = algorithm.actions.sample(output)
    return action, algorithm.log_temperature().exp().detach() * log_prob


def taken_of(algorithm, rollout, env):
    """The actions of one environment, scaled to one, ``[T, 1, A]``."""
    return algorithm.actions.unit(torch.from_numpy(rollout.action[:, env])).unsqueeze(1)


def judged(critics, obs, action, memory):
    """The values ``[2]`` of one action."""
    return critics(torch.cat([obs, action], 1), memory)[0].flatten()


def critic_by_hand(algorithm, rollouts):
    """Half the squared errors of both critics, on average, and the priority of each sequence."""
    losses, priorities, rollout = [], [], rollouts[-1]
    for env in range(ENVS):
        each = [taken_of(algorithm, one, env) for one in rollouts]
        taken = each[-1]
        policy = algorithm.policy if isinstance(algorithm, SAC) else algorithm.target_policy
        before, _ = walked(algorithm.critics, rollouts, env, each)
        _, target_after = walked(algorithm.target_critics, rollouts, env, each)
        _, policy_after = walked(policy, rollouts, env)
        sizes = []
        for t in range(STEPS):
            reward, discount, last = two_steps(rollout, t, env)
            following = next_obs_of(rollout, last, env)
            with torch.no_grad():
                action, entropy = chosen(algorithm, policy(following, policy_after[last])[0])
                value = judged(algorithm.target_critics, following, action, target_after[last]).min()
                target = reward + discount * (value - entropy)
            error = judged(algorithm.critics, obs_of(rollout, t, env), taken[t], before[t]) - target
            losses.append(0.5 * error.square().sum())
            sizes.append(error.abs().mean().item())
        priorities.append(priority(sizes))
    return torch.stack(losses).mean(), priorities


def policy_by_hand(algorithm, rollouts):
    """What the policy's actions are worth, each after the actions that were taken before it."""
    values, entropies, distances, rollout = [], [], [], rollouts[-1]
    for env in range(ENVS):
        each = [taken_of(algorithm, one, env) for one in rollouts]
        taken = each[-1]
        before, _ = walked(algorithm.critics, rollouts, env, each)
        policy_before, _ = walked(algorithm.policy, rollouts, env)
        for t in range(STEPS):
            obs = obs_of(rollout, t, env)
            action, entropy = chosen(algorithm, algorithm.policy(obs, policy_before[t])[0])
            both = judged(algorithm.critics, obs, action, before[t].detach())
            values.append(both.min() if isinstance(algorithm, SAC) else both[0])
            entropies.append(entropy)
            distances.append((action - taken[t]).square().mean())
    value, entropy = torch.stack(values), torch.cat(entropies)
    if isinstance(algorithm, TD3BC):
        return torch.stack(distances).mean() - 2.5 * value.mean() / value.detach().abs().mean()
    if not isinstance(algorithm, SAC):
        return -value.mean()
    log_temperature = algorithm.log_temperature()
    in_nats = -(entropy.detach() / log_temperature.exp().detach()).mean()
    return (entropy - value).mean() + log_temperature * (in_nats - algorithm.target_entropy)


def loss_of(algorithm, part, batch):
    """The loss of one part."""
    return getattr(algorithm, f"{part}_loss")(batch)


#: A sequence with the one before it, and one without.
BEFORE = pytest.mark.parametrize("which", [slice(0, 2), slice(1, 2)], ids=["burn-in", "alone"])


@BEFORE
@pytest.mark.parametrize("kind", KINDS)
def test_the_critics_loss_is_that_of_a_plain_loop_over_steps(kind, which):
    """Of two-step returns, through episodes that end within the sequence; gradients of both critics go back
    to the end of the burn-in.
    """
    algorithm, rollouts = separate(kind), rollouts_of(BOX)[which]
    loss = algorithm.critic_loss(drawn(rollouts, algorithm, weight=torch.ones(ENVS)))
    expected, priorities = critic_by_hand(algorithm, rollouts)
    torch.testing.assert_close(loss.loss, expected)
    assert loss.priorities.tolist() == pytest.approx(priorities, rel=1e-4)
    got, wanted = (torch.autograd.grad(each, parameters(algorithm.critics)) for each in (loss.loss, expected))
    torch.testing.assert_close(got, wanted)


@BEFORE
@pytest.mark.parametrize("kind", KINDS)
def test_the_policys_loss_is_that_of_a_plain_loop_over_steps(kind, which):
    """The actor-learner keeps the actions, which its critics remember; gradients go through the policy's
    memory.
    """
    algorithm, rollouts = separate(kind), rollouts_of(BOX)[which]
    loss = algorithm.policy_loss(drawn(rollouts, algorithm, "policy")).loss
    expected = policy_by_hand(algorithm, rollouts)
    torch.testing.assert_close(loss, expected)
    got, wanted = (torch.autograd.grad(each, parameters(algorithm.policy)) for each in (loss, expected))
    torch.testing.assert_close(got, wanted)
    assert got[1].abs().max() > 0, "of the memory"


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_no_gradient_leaves_the_burn_in(kind, part):
    """Neither into its observations nor into the stored memory; there are some in those of every step after
    it.
    """
    algorithm = separate(kind)
    batch = drawn(rollouts_of(BOX), algorithm, part)
    given = [getattr(batch, name).requires_grad_() for name in ("obs", "earlier", "memory")]
    loss = loss_of(algorithm, part, batch).loss
    seen, *stored = torch.autograd.grad(loss, given, allow_unused=True)
    seen = seen.view(2 * STEPS, ENVS, -1)
    assert not seen[:STEPS].any()
    assert seen[STEPS:].any(2).all()
    assert not any(each is not None and each.any() for each in stored)


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_the_burn_in_changes_what_is_remembered_and_is_not_trained_on(kind, part):
    """Its observations and actions count, but not of an episode that has ended since; and the memory that was
    stored before it, not the one behind it.
    """
    algorithm, rollouts = separate(kind), rollouts_of(BOX)
    before = loss_of(algorithm, part, drawn(rollouts, algorithm, part)).loss
    other = drawn(rollouts, algorithm, part)
    for name in ("obs", "action", "earlier"):
        getattr(other, name)[:2] += 0.5  # of environments 0 and 1 at step 0, whose episodes end
    other.memory += 1.0
    assert torch.equal(loss_of(algorithm, part, other).loss, before)
    for name in ("obs", "action", "earlier"):
        other = drawn(rollouts, algorithm, part)
        getattr(other, name)[2] += 0.5  # of environment 2 at step 0
        assert not torch.equal(loss_of(algorithm, part, other).loss, before), name


def test_critics_begin_with_zeros():
    """What was stored is the policy's: it changes the policy's actions alone."""
    algorithm, rollouts = separate(SAC), rollouts_of(BOX)
    same = [dataclasses.replace(rollout, memory=-rollout.memory) for rollout in rollouts]
    targets = []
    for each in (rollouts, same):
        batch = drawn(each, algorithm)
        batch.discount = torch.zeros_like(batch.discount)
        targets.append(algorithm.critic_loss(batch).loss)
    assert torch.equal(*targets)


@pytest.mark.parametrize("part", ["critic", "policy"])
@pytest.mark.parametrize(
    "more", [{"num_atoms": 5}, {"layer_norm": True}, {"burn_in": False}, {"n_step": 7}], ids=str
)
def test_extensions_go_with_a_memory(part, more):
    """Each has a finite loss that trains all of the network."""
    sac = separate(SAC, **{"n_step": 1, **more})
    loss_of(sac, part, drawn(rollouts_of(BOX), sac, part)).loss.backward()
    network = sac.critics if part == "critic" else sac.policy
    assert all(each.grad.isfinite().all() and each.grad.any() for each in parameters(network))


def test_images_are_refused_with_a_memory_and_discrete_sac_has_none():
    """In one line each."""
    pixels = dataclasses.replace(BOX, obs_shape=(4, 84, 84), obs_dtype="uint8")
    for kind in KINDS:
        with pytest.raises(InvalidEnvironment, match="memory_size is for vectors"):
            algorithms.check(kind, kind.Options(memory_size=4), pixels)
    with pytest.raises(InputError, match="unknown option 'memory_size'"):
        options_from(DiscreteSAC.Options, {"memory_size": 4})
