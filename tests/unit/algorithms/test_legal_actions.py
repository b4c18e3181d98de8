"""Losses and targets with action masks: nothing is learned of, or expected from, an illegal action."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.discrete_sac import DiscreteSAC
from spreeze_zmq.algorithms.distributions import Categorical
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.algorithms.pqn import PQN
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.evaluation.evaluation import play
from spreeze_zmq.policy import MaskRows, Policy
from spreeze_zmq.replay import Minibatches, Replay, RoundStore, replay_of
from tests.unit.algorithms.shipped import MASKED, constant, make, transitions

GAME = "tests.masked:Game"


def test_choices_that_are_forbidden_are_as_if_they_were_not_there():
    """Log probabilities, entropies and gradients are those of a softmax over the others."""
    env = dataclasses.replace(MASKED, action_sizes=(4,))
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    mask = torch.tensor([[True, False, True, True]]).expand(5, -1)
    pi, few = Categorical(env), rows[:, [0, 2, 3]].log_softmax(1)
    assert torch.allclose(pi.log_prob(rows, torch.full((5,), 2), mask), few[:, 1])
    entropy = pi.entropy(rows, mask)
    assert torch.allclose(entropy, -(few.exp() * few).sum(1))
    (gradient,) = torch.autograd.grad(entropy.sum(), rows)
    assert gradient.isfinite().all()
    assert not gradient[:, 1].any()


def masked_batch(mask, **fields):
    """One transition of reward 1 and discount 0.5 to a state with this mask."""
    batch = transitions(MASKED, 1)
    legal = torch.tensor([mask], dtype=torch.bool)
    about = {"reward": torch.ones(1), "discount": torch.full((1,), 0.5), "action": torch.tensor([1])}
    return SimpleNamespace(
        **{**vars(batch), **about, "action_mask": legal, "next_action_mask": legal, **fields}
    )


@pytest.mark.parametrize("double", [False, True])
def test_dqns_target_takes_the_best_legal_action(double):
    """1 + 0.5 * 7: the 9 of action 3 is forbidden; after termination none is legal, and none is needed."""
    dqn = make(DQN, MASKED, double=double)
    constant(dqn.q, 0.0, 4.5, 7.0, 9.0)
    constant(dqn.target_q, 0.0, 0.0, 7.0, 9.0)
    assert dqn.critic_loss(masked_batch([1, 1, 1, 0])).loss.item() == pytest.approx(0.0)
    ended = masked_batch([0, 0, 0, 0], discount=torch.zeros(1), reward=torch.full((1,), 4.5))
    assert dqn.critic_loss(ended).loss.item() == pytest.approx(0.0)


def test_discrete_sac_expects_the_soft_value_of_legal_actions():
    """A uniform policy over two legal actions of 2 and 4, with a temperature of 0.1: equation 10 by hand."""
    sac = make(DiscreteSAC, MASKED)
    constant(sac.policy, 0.0, 0.0, 0.0, 0.0)
    for critics in (sac.critics, sac.target_critics):
        constant(critics, *[2.0, 4.0, 50.0, 50.0] * 2)
    batch = masked_batch([1, 1, 0, 0])
    target = 1.0 + 0.5 * (3.0 + 0.1 * np.log(2.0))
    assert sac.critic_loss(batch).loss.item() == pytest.approx((4.0 - target) ** 2, rel=1e-5)
    loss = sac.policy_loss(batch)
    assert loss.metrics["entropy"].item() == pytest.approx(np.log(2.0), rel=1e-5)
    assert loss.metrics["actor_loss"].item() == pytest.approx(-3.0 - 0.1 * np.log(2.0), rel=1e-5)


def test_pqns_returns_bootstrap_from_the_best_legal_action():
    """One step that is truncated, whose final observation allows actions 0 and 1."""
    pqn = make(PQN, MASKED, gamma=0.5, q_lambda=0.0, layer_norm=False)
    constant(pqn.q, 1.0, 3.0, 5.0, 9.0)
    flags = torch.zeros(1, 1, dtype=torch.bool)
    rollouts = RoundStore(1, "cpu")
    rollouts.add(
        Rollout(
            *("sampler-0", 1, 0, 1, 1, 1, 1),
            obs=np.zeros((2, 1, 3), np.float32),
            action=np.zeros((1, 1), np.int64),
            reward=np.ones((1, 1), np.float32),
            terminated=flags.numpy(),
            truncated=~flags.numpy(),
            final_obs=np.zeros((1, 3), np.float32),
            final_index=np.zeros((1, 2), np.int32),
            log_prob=np.zeros((1, 1), np.float32),
            action_mask=np.ones((2, 1, 4), np.bool_),
            final_action_mask=np.array([[1, 1, 0, 0]], np.bool_),
        )
    )
    assert pqn.targets_of(rollouts.take()[0])["target"].item() == pytest.approx(1.0 + 0.5 * 3.0)


def collected(batch, policy, obs, mask, rng, num_steps):
    """A rollout of a game as a sampler makes it, and what it ends with."""
    obs = obs.astype(np.float32)
    about = {"obs": [obs], "action": [], "reward": [], "terminated": [], "truncated": [], "log_prob": []}
    finals, masks = [obs[:0]], None if mask is None else MaskRows(mask)
    for _ in range(num_steps):
        action, log_prob = policy.act(obs, rng, log_prob=True, action_mask=mask)
        obs, reward, terminated, truncated, info = batch.step(action)
        obs = obs.astype(np.float32)
        mask = info.get("action_mask")
        if masks is not None:
            masks.add(info, terminated | truncated)
        finals += [info["final_obs"][terminated | truncated]] if "final_obs" in info else []
        given = (obs, action, reward.astype(np.float32), terminated, truncated, log_prob)
        for name, value in zip(about, given, strict=True):
            about[name].append(value)
    arrays = {name: np.stack(values) for name, values in about.items()}
    ended = np.argwhere(arrays["terminated"] | arrays["truncated"]).astype(np.int32)
    size = num_steps, batch.num_envs
    arrays |= {"final_obs": np.concatenate(finals, dtype=np.float32), "final_index": ended}
    arrays |= {} if masks is None else masks.arrays()
    return Rollout("sampler-0", 1, 0, size[0] * size[1], policy.version, *size, **arrays), obs, mask


def published(half, version=1):
    """The policy of a half, as a sampler gets it."""
    return Policy({"version": version, "description": half.description()}, half.policy_arrays())


def update(half, store, order):
    """One round of epochs, or 32 batches of a replay."""
    if isinstance(store, RoundStore):
        for minibatch in Minibatches(half.prepare(store.take()[0]), 4, 64).drawn(order):
            half.update(minibatch)
        return
    for _ in range(32):
        half.update(store.sample(64))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["ppo", "dqn", "pqn", "discrete_sac"])
def test_a_game_that_illegal_moves_end_is_learned_to_its_optimum(name):
    """In one process with the real parts. Nothing but the mask says what is legal; no move is illegal, in
    training or in 10,000 greedy steps, which all earn 1.
    """
    spec, kind = envs.probe(GAME, {"form": "part" if name == "pqn" else "info"}), algorithms.get(name)
    settings = {"hidden_sizes": (32,), "learning_rate": 3e-3, "precision": "fp32", "batch_size": 64}
    settings |= {"entropy_coefficient": 0.01} if name == "ppo" else {}
    settings |= {} if kind.on_policy() else {"replay_capacity": 20_000}
    options = algorithms.options_from(kind.Options, settings)
    halves, stores = {}, {}
    for part in ("critic", "policy")[: 1 + kind.has_policy_loss()]:
        halves[part] = algorithms.make(part, kind, options, spec, "cpu", 1)
        replayed = (kind.fields_of(part), spec, options, "cpu", 1)
        stores[part] = RoundStore(1, "cpu") if kind.on_policy() else replay_of(*replayed)
    acting = list(halves.values())[-1]
    batch, judge = (envs.make(GAME, num, seed=1, action_mask=True, **spec.kwargs) for num in (16, 100))
    (obs, info), rng, order = batch.reset(), np.random.default_rng(1), torch.Generator().manual_seed(1)
    mask, mean_return, turns = info["action_mask"], 0.0, 0
    while mean_return < 10.0 and turns < 100:
        rollout, obs, mask = collected(batch, published(acting), obs, mask, rng, 32)
        assert (rollout.reward >= 0).all()
        for part, half in halves.items():
            stores[part].add(rollout)
            half.env_steps += rollout.num_transitions
            update(half, stores[part], order)
        if len(halves) == 2:
            halves["policy"].load_critic(halves["critic"].weights.numpy().copy())
            halves["critic"].load_policy(halves["policy"].policy_arrays())
        turns += 1
        if turns % 5 == 0:
            mean_return = play(judge, published(acting), seed=5).mean_return
    score = play(judge, published(acting), seed=1_000, num_episodes=1_000)
    assert score.returns.tolist() == [10.0] * 1_000
    assert sum(game.unwrapped.num_illegal for game in judge.envs) == 0


def test_a_replay_keeps_the_mask_of_each_observation():
    """That of the true final one where an episode ended, also n steps on."""
    spec = envs.probe(GAME, {"limit": True})
    options = algorithms.options_from(
        DQN.Options, {"replay_capacity": 500, "learning_starts": 1, "n_step": 3}
    )
    batch = envs.make(GAME, 4, seed=1, action_mask=True, limit=True)
    obs, info = batch.reset()
    policy = published(algorithms.make("critic", DQN, options, spec, "cpu", 1), 0)
    rollout, *_ = collected(batch, policy, obs, info["action_mask"], np.random.default_rng(1), 24)
    replay = Replay(spec, options)
    replay.add(rollout)
    rows = replay.ring.take(torch.arange(24 * 4))
    now = rows["action_mask"].numpy().reshape(24, 4, -1)
    after = rows["next_action_mask"].numpy().reshape(24, 4, -1)
    assert np.array_equal(now, rollout.action_mask[:-1])
    finals = dict(zip(map(tuple, rollout.final_index.tolist()), rollout.final_action_mask, strict=True))
    for t in range(24):
        for n in range(4):
            last = next((k for k in range(t, min(t + 3, 24)) if (k, n) in finals), None)
            expected = finals[last, n] if last is not None else rollout.action_mask[min(t + 3, 24), n]
            assert np.array_equal(after[t, n], expected)
