"""SAC in plain torch: losses by hand, where gradients go, updates beside a loop without the library."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils import vector_to_parameters

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.declarations import PARTS
from spreeze_zmq.algorithms.distributions import TanhNormal
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.algorithms.twin_critics import TwinCriticOptions, TwinCritics
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import options_of
from spreeze_zmq.envs import EnvironmentSpec

pytestmark = pytest.mark.usefixtures("one_thread")

ENVIRONMENT = EnvironmentSpec(
    "none",
    {},
    (3,),
    "float32",
    "box",
    (2,),
    np.array([-1.0, -2.0], np.float32),
    np.array([1.0, 4.0], np.float32),
)
SMALL = {"hidden_sizes": (8, 6), "precision": "fp32", "batch_size": 16, "learning_rate": 0.003}
C51 = {"num_atoms": 11, "v_min": -10.0, "v_max": 10.0}


def make(kind=SAC, seed=0, **options):
    """An algorithm with its networks, as the library hands it to a loss."""
    torch.manual_seed(seed)
    algorithm = kind(kind.Options(**{**SMALL, **options}), ENVIRONMENT)
    networks = algorithm.networks()
    for name, network in {**networks.critic, **networks.policy, **networks.targets}.items():
        setattr(algorithm, name, network)
    return algorithm


def make_batch(size=16, seed=0, weight=None):
    """Random transitions, some of them terminal."""
    source = torch.Generator().manual_seed(seed)
    low, high = (torch.from_numpy(bound) for bound in (ENVIRONMENT.action_low, ENVIRONMENT.action_high))
    return SimpleNamespace(
        obs=torch.randn(size, 3, generator=source),
        action=torch.rand(size, 2, generator=source) * (high - low) + low,
        reward=torch.randn(size, generator=source),
        discount=0.9 * (torch.rand(size, generator=source) < 0.8),
        next_obs=torch.randn(size, 3, generator=source),
        weight=weight,
    )


def parameters(*modules):
    """Of all of them, in order."""
    return [parameter for module in modules for parameter in module.parameters()]


class KnownNoise(TanhNormal):
    """The draw is the mean, with the density of noise 0."""

    def noise(self, mean):
        """None."""
        return torch.zeros_like(mean)


class Still(SAC):
    """Draws without noise."""

    def __init__(self, options, env):
        super().__init__(options, env)
        self.actions = KnownNoise(env, options.log_std_min, options.log_std_max)


def constant(network, *values):
    """Make a network give these numbers everywhere: of each of an ensemble, or of the only one."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        last = parameters(network)[-1]
        last.copy_(torch.tensor(values).view(last.shape))


def test_the_critic_loss_by_hand():
    """Targets 3 and 7, temperature 0.5, mean 0 and log std -1.5: half the squared errors of 1 and 2."""
    sac, batch = make(Still, initial_temperature=0.5), make_batch(2)
    constant(sac.critics, 1.0, 2.0)
    constant(sac.target_critics, 7.0, 3.0)
    constant(sac.policy, 0.0, 0.0, 0.0, 0.0)
    batch.reward, batch.discount = torch.tensor([1.0, 4.0]), torch.tensor([0.5, 0.0])
    # Two actions of density N(0 | 0, e^-1.5) each, and tanh has the slope 1 at 0.
    log_prob = 2 * (1.5 - 0.5 * math.log(2 * math.pi))
    first = 1.0 + 0.5 * (3.0 - 0.5 * log_prob)
    errors = np.array([[1.0 - first, 1.0 - 4.0], [2.0 - first, 2.0 - 4.0]])
    batch.weight = torch.ones(2)
    loss = sac.critic_loss(batch)
    assert loss.loss.item() == pytest.approx((0.5 * errors**2).mean(1).sum(), rel=1e-5)
    assert loss.priorities.tolist() == pytest.approx(np.abs(errors).mean(0).tolist(), rel=1e-5)
    assert loss.metrics["q_mean"]().item() == pytest.approx(1.5)
    assert loss.metrics["target_mean"]().item() == pytest.approx((first + 4.0) / 2, rel=1e-5)


def test_the_policy_loss_by_hand():
    """Temperature 0.5 times the log density, less the lower critic; then the temperature's own objective."""
    sac, batch = make(Still, initial_temperature=0.5, target_entropy=-3.0), make_batch(4)
    constant(sac.critics, 5.0, 2.0)
    constant(sac.policy, 0.0, 0.0, 0.0, 0.0)
    log_prob = 2 * (1.5 - 0.5 * math.log(2 * math.pi))
    improvement = 0.5 * log_prob - 2.0
    temperature = -math.log(0.5) * (log_prob - 3.0)
    loss = sac.policy_loss(batch)
    assert loss.loss.item() == pytest.approx(improvement + temperature, rel=1e-5)
    assert loss.metrics["actor_loss"].item() == pytest.approx(improvement, rel=1e-5)
    assert loss.metrics["temperature"].item() == pytest.approx(0.5)
    loss.loss.backward()
    # d loss / d log temperature, equation 18: it falls while there is more entropy than the target.
    assert sac.log_temperature.value.grad.item() == pytest.approx(-(log_prob - 3.0), rel=1e-5)


def test_the_critic_loss_moves_the_critics_alone():
    """Neither policy, temperature nor targets get a gradient."""
    sac = make()
    sac.critic_loss(make_batch()).loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in sac.critics.parameters())
    others = parameters(sac.policy, sac.log_temperature, sac.target_critics)
    assert all(parameter.grad is None for parameter in others)


@pytest.mark.parametrize("options", [{}, C51], ids=["scalar", "c51"])
def test_the_policy_loss_moves_every_layer_of_the_policy(options):
    """Through critics that are not trained; the targets are not asked."""
    sac = make(**options)
    sac.critics.requires_grad_(False)
    sac.policy_loss(make_batch()).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters(sac.policy, sac.log_temperature))
    assert all(p.grad is None for p in parameters(sac.critics, sac.target_critics))


def test_a_fixed_temperature_is_no_parameter():
    """learn_temperature = false: the loss is that of the policy."""
    sac = make(learn_temperature=False)
    loss = sac.policy_loss(make_batch())
    assert parameters(sac.log_temperature) == []
    assert loss.loss.item() == pytest.approx(loss.metrics["actor_loss"].item())


def test_weights_scale_each_transition():
    """A transition of weight 0 teaches nothing."""
    sac, batch = make(), make_batch(4)
    whole = make_batch(8)
    for name in ("obs", "action", "reward", "discount", "next_obs"):
        setattr(batch, name, getattr(whole, name)[:4])
    whole.discount, batch.discount = torch.zeros(8), torch.zeros(4)
    whole.weight = torch.tensor([2.0] * 4 + [0.0] * 4)
    assert sac.critic_loss(whole).loss.item() == pytest.approx(sac.critic_loss(batch).loss.item(), rel=1e-5)


@pytest.mark.parametrize("twins", ["min", "mean"])
def test_a_distribution_of_twins_is_bootstrapped(twins):
    """All on atom 1 against all on atom 3 of 0..4: the lower, or the even mixture; reward 0.5 splits each."""
    twin = TwinCritics(TwinCriticOptions(num_atoms=5, v_min=0.0, v_max=4.0, twin_critics=twins))
    logits = torch.full((2, 1, 5), -100.0)
    logits[0, 0, 3] = logits[1, 0, 1] = 0.0
    target = twin.target(logits, torch.tensor([0.5]), torch.tensor([1.0]))[0].tolist()
    expected = [0, 0.5, 0.5, 0, 0] if twins == "min" else [0, 0.25, 0.25, 0.25, 0.25]
    assert target == pytest.approx(expected, abs=1e-6)
    assert twin.value(logits).item() == pytest.approx(1.0 if twins == "min" else 2.0)


def test_returns_beyond_the_atoms_are_measured():
    """The probability of the targets on the ends: three quarters of a reward of 3.75 in 0..4 on the last."""
    twin = TwinCritics(TwinCriticOptions(num_atoms=5, v_min=0.0, v_max=4.0))
    for reward, lowest, highest in ((3.75, 0.0, 0.75), (9.0, 0.0, 1.0), (-1.0, 1.0, 0.0)):
        logits, reward_t = torch.zeros(2, 1, 5), torch.tensor([reward])
        target = twin.target(logits, reward_t, torch.zeros(1))
        steps = SimpleNamespace(batch=SimpleNamespace(weight=None))
        measured = twin.loss(logits, target, steps).metrics
        found = [measured[f"mass_at_{end}"]().item() for end in ("v_min", "v_max")]
        assert found == pytest.approx([lowest, highest], abs=1e-6)


@contextlib.contextmanager
def drawing_from(states, name):
    """Inside, torch's default generator is this one of several."""
    torch.set_rng_state(states[name])
    yield
    states[name] = torch.get_rng_state()


def optimizer(options, weights, others=()):
    """torch's AdamW, where what decays is named apart."""
    groups = [{"params": weights, "weight_decay": options.weight_decay}]
    groups += [{"params": others, "weight_decay": 0.0}] if others else []
    return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, options.adam_beta2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**C51, "layer_norm": True},
        {"twin_critics": "mean", "activation": "silu", "actor_layer_norm": True, "target_entropy": 0.5},
        {**C51, "twin_critics": "mean", "activation": "tanh", "weight_decay": 0.1, "adam_beta2": 0.95},
        {"learn_temperature": False, "activation": "elu", "critic_hidden_sizes": (12,)},
    ],
    ids=["plain", "c51-norm", "mean-silu", "c51-decay", "fixed-elu"],
)
def test_updates_are_those_of_a_loop_in_plain_torch(options):
    """The library's halves, native and recorded, beside the losses, torch's AdamW and autograd: critics,
    targets, policy and temperature, exchanged after every update; both in float32.
    """
    sac = make(tau=0.05, **options)
    critic, policy = (algorithms.make(part, SAC, sac.options, ENVIRONMENT, "cpu", 3) for part in PARTS)
    first, first_policy = critic.state_dict(), policy.state_dict()
    vector_to_parameters(first["own"].clone(), sac.critics.parameters())
    vector_to_parameters(first["targets"].clone(), sac.target_critics.parameters())
    vector_to_parameters(first_policy["own"].clone(), parameters(sac.policy, sac.log_temperature))
    noise = {"critic": first["generator"], "policy": first_policy["generator"]}
    plain_noise = dict(noise)
    adams = {
        "critic": optimizer(sac.options, parameters(sac.critics)),
        "policy": optimizer(sac.options, parameters(sac.policy), parameters(sac.log_temperature)),
    }
    for step in range(40):
        batch = make_batch(64, seed=step, weight=torch.rand(64) if step % 2 else None)
        with drawing_from(noise, "critic"):
            critic.update(vars(batch))
        policy.load_critic(critic.weights.numpy())
        with drawing_from(noise, "policy"):
            policy.update(batch.obs)
        critic.load_policy(policy.policy_arrays())
        for part, loss_of in (("critic", sac.critic_loss), ("policy", sac.policy_loss)):
            with drawing_from(plain_noise, part):
                loss = loss_of(batch)
            if loss.priorities is not None:
                priorities = loss.priorities
            adams[part].zero_grad()
            loss.loss.backward()
            adams[part].step()
            if part == "critic":
                sac.after_critic_step()
    last, close = critic.state_dict(), {"rtol": 1e-3, "atol": 2e-4}
    for modules, flat in (
        ((sac.critics,), last["own"]),
        ((sac.target_critics,), last["targets"]),
        ((sac.policy, sac.log_temperature), policy.weights),
    ):
        ours = torch.cat([parameter.detach().reshape(-1) for parameter in parameters(*modules)])
        torch.testing.assert_close(ours, flat[: len(ours)], **close)  # buffers come last
    moved = (last["own"] - first["own"]).abs().mean().item()
    assert moved > 20 * close["atol"], "training moved nothing: the comparison would show nothing"
    torch.testing.assert_close(priorities, critic.priorities(), rtol=1e-3, atol=1e-3)


def test_options_that_do_not_fit_are_refused():
    """As before, each with its name and value."""
    with pytest.raises(InputError, match="log_std_min = 2 must lie below log_std_max = 2"):
        SAC.Options(log_std_min=2.0)
    with pytest.raises(InputError, match="v_min = 5 must lie below v_max = 5"):
        SAC.Options(v_min=5.0, v_max=5.0)
    with pytest.raises(InputError, match="can never be reached"):
        SAC.Options(learning_starts=2_000_000)


def test_the_first_temperature_suits_the_size_of_rewards():
    """A bonus of the same weight would drown rewards that are divided."""
    for options, expected in (({}, 0.1), ({"num_atoms": 11}, 0.002), ({"initial_temperature": 0.5}, 0.5)):
        temperature = make(Still, **options).log_temperature().exp()
        assert float(temperature.detach()) == pytest.approx(expected)


def test_rates_that_follow_the_batch_are_marked():
    """learning_rate by the square root, tau by its average."""
    marks = {option.name: option.follows for option in options_of(SAC.Options) if option.follows}
    assert marks == {"learning_rate": "sqrt", "tau": "average"}
