"""What a learner says of the arithmetic of its updates."""

import logging
from dataclasses import replace

import pytest
import torch

from spreeze_zmq import algorithms, nn
from spreeze_zmq.algorithms import Algorithm, Networks, ReplayOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.base.schema import options_of
from spreeze_zmq.learner import arithmetic
from spreeze_zmq.learner.arithmetic import arithmetic_of, flops_per_transition
from spreeze_zmq.learner.at_hand import random_batch_of, random_round
from spreeze_zmq.learner.measure_updates import Rehearsal
from spreeze_zmq.plan import topology
from spreeze_zmq.replay import Minibatches
from tests.unit.algorithms.shipped import BOX, DISCRETE, PIXELS

IMAGES = replace(PIXELS, obs_shape=(4, 44, 40))
CASES = {
    "sac": ("sac", BOX, {}),
    "td3": ("td3", BOX, {}),
    "dqn": ("dqn", DISCRETE, {"prioritized": True}),
    "dqn_images": ("dqn", IMAGES, {"frame_stack": 2}),
    "ppo": ("ppo", BOX, {"normalize_observations": True}),
    "ppo_images": ("ppo", IMAGES, {"network": "small_cnn", "frame_stack": 2}),
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
            batches = [random_batch_of(kind.fields_of(part), env, options, 16, "cpu")] * 3
        for batch in batches:
            half.update(batch)
        weights.append(torch.as_tensor(half.weights).clone())
    assert torch.equal(*weights)


def test_counting_leaves_the_random_numbers_of_a_gpu(monkeypatch):
    """The half on the CPU that is counted has a seed of its own, which torch gives to every device."""
    kind, state = algorithms.get("sac"), [42]
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: state.append(seed))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: (device, state[-1]))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda kept, device: state.append(kept[1]))
    monkeypatch.setattr(arithmetic, "most_flops_per_s", lambda device, dtype: 1.0)
    half = algorithms.make("critic", kind, kind.Options(precision="fp32", hidden_sizes=(8,)), BOX, "cpu", 1)
    state[:] = [42]
    assert arithmetic_of(half, BOX, "cuda:0").flops_per_transition > 0
    assert len(state) > 1
    assert state[-1] == 42


@pytest.mark.parametrize("name", ["sac", "td3", "dqn", "discrete_sac", "ppo", "pqn"])
def test_an_update_whose_options_move_is_counted(name):
    """With every option that may be a schedule, the replay's own among them."""
    kind = algorithms.get(name)
    told = {} if kind.on_policy() else {"prioritized": True}
    for each in options_of(kind.Options):
        if each.schedule and isinstance(each.default, float):
            told[each.name] = {"from": each.default, "to": each.default / 2, "over": {"env_steps": 9}}
    assert kind.on_policy() or "priority_beta" in told
    env = DISCRETE if "box" not in kind.acts_in else BOX
    half = algorithms.make("critic", kind, algorithms.options_from(kind.Options, told), env, "cpu", 1)
    assert flops_per_transition(half, env) > 1000


def test_an_update_whose_options_move_is_measured():
    """For a batch size of auto, before anything starts."""
    moving = {"priority_beta": {"from": 0.4, "to": 1.0, "over": {"env_steps": 9}}, "prioritized": True}
    run = {"env": "Pendulum-v1", "algorithm": "sac"}
    plan = topology.load({"run": run, "algorithm": {**moving, "batch_size": "auto", "hidden_sizes": [8]}})
    assert Rehearsal(plan).seconds(64, 1) > 0.0


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


class Own(Algorithm):
    """Keeps a number of its first batch in a plain attribute, and relies on the size of a batch."""

    Options = ReplayOptions
    scale = None

    def networks(self):
        return Networks(critic={"q": nn.mlp([3, 8, 4])}, acting="q")

    def distribution(self):
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        if self.scale is None:
            self.scale = batch.reward.std()
        return self.q(batch.obs)[list(range(self.options.batch_size))].square().mean() / self.scale


def test_counting_leaves_the_attributes_of_an_own_algorithm():
    """What it keeps of its first batch is of the run's first batch, and of no random numbers."""
    half = algorithms.make("critic", Own, Own.Options(batch_size=48), DISCRETE, "cpu", 1)
    arithmetic_of(half, DISCRETE, "cpu")
    assert half.algorithm.scale is None


@pytest.mark.parametrize(("size", "is_counted"), [(48, True), (4096, False)])
def test_a_loss_that_relies_on_the_size_of_a_batch_is_counted(size, is_counted):
    """By an update of that size, unless a learner would begin late for it."""
    half = algorithms.make("critic", Own, Own.Options(batch_size=size), DISCRETE, "cpu", 1)
    one = 2 * (3 * 8 + 8 * 4)
    flops = arithmetic_of(half, DISCRETE, "cpu").flops_per_transition
    assert flops == (3 * one - 2 * 3 * 8 if is_counted else 0.0)
