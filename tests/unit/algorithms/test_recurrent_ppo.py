"""PPO with a memory, on rollouts that its own policy made as samplers make them."""

import dataclasses

import numpy as np
import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms.class_policy import loader_of_run
from spreeze_zmq.algorithms.dqn import DQN
from spreeze_zmq.base.errors import AlgorithmError, InputError, InvalidEnvironment, WireError
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.policy import Policy, actor, register_class_loader
from spreeze_zmq.replay import Minibatches, RoundStore
from tests.unit.algorithms.shipped import BOX, DISCRETE, MASKED, PIXELS, UNBOUNDED

PPO = algorithms.get("ppo")
OPTIONS = PPO.Options(memory_size=6, hidden_sizes=(8,))
STEPS, ENVS = 9, 4


@pytest.fixture(autouse=True)
def loader(monkeypatch):
    """As in a sampler of a run with PPO."""
    monkeypatch.setattr(actor, "_loaders", [])
    register_class_loader(loader_of_run("ppo"))


def policy_of(half, version=1):
    """As a message brings it."""
    fields = {"version": version, "description": half.description(), "extras": {}}
    return Policy.from_message(fields, half.policy_arrays())


def rollouts_of(policy, env, num=2, seed=0):
    """Rollouts one after the other in which episodes end at random; observations are noise, and half of all
    actions are legal where masks say so.
    """
    rng, shape = np.random.default_rng(seed), (STEPS, ENVS)
    legal, masked = masks(rng, (1, ENVS), env), {}
    frames = policy.frame_stack()
    frames.begin(rng.standard_normal((ENVS, *env.obs_shape)).astype(np.float32))
    for number in range(num):
        memory, obs, actions, log_probs = frames.memory.copy(), [frames.seen], [], []
        ended = rng.random((2, *shape)) < 0.15
        ended[1] &= ~ended[0]
        if env.action_mask:
            legal = np.concatenate([legal[-1:], masks(rng, shape, env)])
            masked = {"action_mask": legal, "final_action_mask": masks(rng, (ended.sum(),), env)}
        for t in range(STEPS):
            about = {"action_mask": legal[t]} if env.action_mask else {}
            action, log_prob = policy.act(frames.seen, rng, log_prob=True, memory=frames.memory, **about)
            actions.append(action)
            log_probs.append(log_prob)
            obs.append(rng.standard_normal((ENVS, *env.obs_shape)).astype(np.float32))
            frames.add(obs[-1], ended[0, t] | ended[1, t])
        yield Rollout(
            *("sampler-0", 1, number, (number + 1) * STEPS * ENVS, policy.version, STEPS, ENVS),
            obs=np.stack(obs),
            action=np.stack(actions),
            reward=rng.standard_normal(shape).astype(np.float32),
            terminated=ended[0],
            truncated=ended[1],
            final_obs=rng.standard_normal((ended.sum(), *env.obs_shape)).astype(np.float32),
            final_index=np.argwhere(ended[0] | ended[1]).astype(np.int32),
            log_prob=np.stack(log_probs),
            memory=memory,
            **masked,
        )


def masks(rng, shape, env):
    """One action is legal, and others at random."""
    legal = rng.random((*shape, env.num_choices)) < 0.5
    legal[..., :1] |= ~legal.any(-1, keepdims=True)
    return legal


def round_of(policy, env):
    """Two rollouts side by side, the second of which goes on where the first ended."""
    store = RoundStore(2, "cpu")
    for rollout in rollouts_of(policy, env):
        store.add(rollout)
    return store.take()[0]


def test_a_policy_that_arrives_draws_nothing():
    """A user's ``act`` may draw from torch's generator, of which a run in order keeps the state."""
    half = algorithms.make("policy", PPO, OPTIONS, BOX, "cpu", 1)
    before = torch.get_rng_state()
    policy_of(half)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "env", [BOX, DISCRETE, MASKED, UNBOUNDED], ids=["box", "discrete", "masked", "unbounded"]
)
def test_the_learner_finds_the_odds_that_the_sampler_had(env):
    """Through episodes that end within rollouts, and from one rollout into the next: no step is stale."""
    half = algorithms.make("policy", PPO, OPTIONS, env, "cpu", 1)
    fields = half.prepare(round_of(policy_of(half), env))
    np.testing.assert_allclose(fields["rho"].numpy(), 1.0, rtol=1e-4)
    for batch in Minibatches(fields, 1, 2 * STEPS).drawn(torch.Generator().manual_seed(1)):
        ratio = half.update(batch)["kl"]
        break
    assert abs(float(ratio)) < 1e-5


def test_the_critic_sees_what_the_policy_remembers():
    """Two rounds that differ in the first memory alone have other targets."""
    half = algorithms.make("critic", PPO, OPTIONS, BOX, "cpu", 1)
    made = round_of(policy_of(algorithms.make("policy", PPO, OPTIONS, BOX, "cpu", 1)), BOX)
    fields = half.prepare(made)
    assert fields["remembered"].shape == (STEPS, 2 * ENVS, 6)
    assert torch.equal(fields["remembered"][0], made.memory)
    assert not fields["remembered"][made.begins[:-1]].any()
    other = half.prepare(dataclasses.replace(made, memory=torch.zeros_like(made.memory)))
    assert not torch.equal(fields["target"][0], other["target"][0])
    assert set(half.update(next(Minibatches(fields, 1, 64).drawn(torch.Generator()))))


def test_a_policy_from_a_file_remembers(tmp_path):
    """One environment or several; its memory is the caller's to keep."""
    half = algorithms.make("policy", PPO, OPTIONS, BOX, "cpu", 1)
    policy_of(half).save(tmp_path / "policy.safetensors", {})
    policy = Policy.load(tmp_path / "policy.safetensors")
    assert policy.memory_size == 6
    memory = np.zeros((2, 6), np.float32)
    obs = np.ones((2, 3), np.float32)
    first = policy(obs, memory)
    kept = memory.copy()
    assert (kept != 0).all()
    assert (policy(obs, memory) != first).any()
    one = np.zeros(6, np.float32)
    np.testing.assert_allclose(policy(obs[0], one), first[0], rtol=1e-5)
    np.testing.assert_allclose(one, kept[0], rtol=1e-5)
    with pytest.raises(InputError, match=r"recurrent: it takes a memory of shape \(2, 6\), float32, zeros"):
        policy(obs)


def test_a_file_that_asks_for_any_size_is_refused_before_it_gets_it(tmp_path):
    """What ships needs no trust, so the numbers of the file alone must not fill the memory."""
    half = algorithms.make("policy", PPO, OPTIONS, BOX, "cpu", 1)
    description = half.description()
    description["options"]["hidden_sizes"] = [1_000_000, 1_000_000]
    with pytest.raises(WireError, match=r"parameters for networks of 1,0\d\d,"):
        Policy.from_message({"version": 1, "description": description}, half.policy_arrays())


class Replayed(algorithms.get("sac")):
    """Off-policy."""

    @classmethod
    def memory_size(cls, options):
        """Where none can be kept."""
        return 4


class Network(torch.nn.Module):
    """Acts by a layer, and gives the memory ``times`` over; 0 for not at all.

    Args:
        times: how often.
    """

    def __init__(self, times):
        super().__init__()
        self.layer, self.times = nn.mlp((3, 4)), times

    def forward(self, rows, memory):
        """One step."""
        return (self.layer(rows), torch.cat([memory] * self.times, 1)) if self.times else self.layer(rows)


class Forgets(PPO):
    """Its network gives no memory back."""

    times = 0

    def networks(self):
        """The value network of PPO."""
        return dataclasses.replace(super().networks(), policy={"policy": Network(self.times)})


class Acts(DQN):
    """Acts by itself, without what it remembers."""

    def act(self, obs, greedy):
        """Always the first."""
        return torch.zeros(len(obs), dtype=torch.int64)


class Grows(Forgets):
    """Its memory has another size after a step."""

    times = 2


@pytest.mark.parametrize(
    ("kind", "env", "words"),
    [
        (Replayed, BOX, "gives 4, and its replay draws steps without those before them; let Options inherit"),
        (
            Forgets,
            DISCRETE,
            r"the network 'policy' gives a tensor of shape \(2, 4\), expected its output",
        ),
        (
            Grows,
            DISCRETE,
            r"next memory, gives a tensor of shape \(2, 12\) .* expected shape \(2, 6\)",
        ),
        (PPO, PIXELS, "memory_size is for vectors; frame_stack shows several images at once"),
        (Acts, DISCRETE, r"memory_size = 6, and an act\(\) of its own gets no memory; set memory_size = 0"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_starts(kind, env, words):
    """One line each."""
    own = {Replayed: kind.Options(), Acts: Acts.Options(memory_size=6)}
    options = own.get(kind, OPTIONS)
    with pytest.raises((AlgorithmError, InvalidEnvironment), match=words):
        algorithms.check(kind, options, env)
