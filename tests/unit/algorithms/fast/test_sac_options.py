"""What large batches are learned with: each option of SAC against autograd, torch's optimisers or by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from spreeze_zmq.algorithms import fast
from spreeze_zmq.algorithms.fast import sac_networks
from spreeze_zmq.algorithms.fast.values import CategoricalValue, ScalarValue
from spreeze_zmq.algorithms.flat import FlatAdam
from spreeze_zmq.algorithms.precision import has_bf16
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.errors import InputError, WireError
from spreeze_zmq.policy import Policy

CPU = torch.device("cpu")
needs_bf16 = pytest.mark.skipif(not has_bf16(CPU), reason="this processor has no bf16")

ENVIRONMENT = SimpleNamespace(
    obs_shape=(3,),
    obs_dtype="float32",
    action_kind="box",
    action_shape=(2,),
    action_low=np.array([-1.0, -1.0], np.float32),
    action_high=np.array([1.0, 1.0], np.float32),
)
SMALL = {"hidden_sizes": (8, 6), "precision": "fp32", "batch_size": 16, "learning_rate": 0.01}
C51 = {"num_atoms": 11, "v_min": -10.0, "v_max": 10.0}
ALL = {
    **C51,
    "twin_critics": "mean",
    "weight_decay": 0.1,
    "adam_beta2": 0.95,
    "max_gradient_norm": 1.0,
    "normalize_observations": True,
    "layer_norm": True,
    "actor_layer_norm": True,
    "critic_hidden_sizes": (12, 9),
    "actor_hidden_sizes": (7,),
    "activation": "silu",
}


def make(half, seed=0, **options):
    """A critic or an actor of small networks."""
    maker = {"critic": fast.make_critic, "actor": fast.make_policy}[half]
    return maker(SAC.Options(**{**SMALL, **options}), ENVIRONMENT, "cpu", seed)


def make_batch(size=16, seed=0, weight=None):
    """Random transitions, some of them terminal."""
    source = torch.Generator().manual_seed(seed)
    return SimpleNamespace(
        obs=torch.randn(size, 3, generator=source),
        action=torch.rand(size, 2, generator=source) * 2 - 1,
        reward=torch.randn(size, generator=source),
        discount=0.9 * (torch.rand(size, generator=source) < 0.8),
        next_obs=torch.randn(size, 3, generator=source),
        weight=weight,
    )


def project_by_hand(probability, moved, atoms):
    """Algorithm 1 of arXiv 1707.06887, one atom after the other."""
    step, result = float(atoms[1] - atoms[0]), np.zeros((len(moved), len(atoms)))
    for row, atom in np.ndindex(*moved.shape):
        place = (min(max(moved[row, atom], float(atoms[0])), float(atoms[-1])) - float(atoms[0])) / step
        low, high = math.floor(place), math.ceil(place)
        if low == high:
            result[row, low] += probability[row, atom]
        else:
            result[row, low] += probability[row, atom] * (high - place)
            result[row, high] += probability[row, atom] * (place - low)
    return result


@pytest.mark.parametrize("twins", ["min", "mean"])
def test_the_distribution_is_projected_as_the_paper_says(twins):
    """The lower critic's or the mixture's, moved by reward, discount and entropy; beyond both ends too."""
    value = CategoricalValue(twins, 5, -2.0, 2.0, torch.device("cpu"))
    output = torch.randn(2, 40, 5, generator=torch.Generator().manual_seed(0))
    reward, bonus = torch.linspace(-4, 4, 40), torch.linspace(0.5, -0.5, 40)
    discount = torch.full((40,), 0.9)
    discount[::5] = 0.0
    probabilities = output.softmax(2).double().numpy()
    atoms = np.linspace(-2, 2, 5)
    if twins == "min":
        lowest = (probabilities @ atoms).argmin(0)
        probability = probabilities[lowest, np.arange(40)]
    else:
        probability = probabilities.mean(0)
    moved = (reward[:, None] + discount[:, None] * (bonus[:, None] + torch.from_numpy(atoms))).numpy()
    target = value.target(output, -bonus, torch.tensor(-1.0), reward, discount)
    np.testing.assert_allclose(target.numpy(), project_by_hand(probability, moved, atoms), atol=1e-5)
    np.testing.assert_allclose(target.sum(1).numpy(), 1.0, rtol=1e-5)


def test_the_mean_of_two_critics_is_the_bootstrap():
    """reward + discount * (mean of 3 and 7 + bonus); the lower one with ``min``."""
    output = torch.tensor([[[3.0]], [[7.0]]])
    one, half = torch.ones(1), torch.full((1,), 0.5)
    assert ScalarValue("mean", CPU).target(output, -one, -one[0], one, half).item() == 1 + 0.5 * (5 + 1)
    assert ScalarValue("min", CPU).target(output, -one, -one[0], one, half).item() == 1 + 0.5 * (3 + 1)


@pytest.mark.parametrize("value", [ScalarValue("min", CPU), CategoricalValue("min", 7, -3, 3, CPU)])
def test_the_gradients_of_a_value_equal_autograd(value):
    """Of the weighted loss and of the weighted expectation, by the critics' output."""
    source = torch.Generator().manual_seed(1)
    output = torch.randn(2, 9, value.num_outputs, generator=source).requires_grad_()
    weight = torch.rand(9, generator=source)
    if value.num_outputs == 1:
        target = torch.randn(9, generator=source)
        expected, loss = output[:, :, 0], 0.5 * (output[:, :, 0] - target) ** 2
    else:
        target = torch.randn(9, 7, generator=source).softmax(1)
        expected = output.softmax(2) @ torch.linspace(-3, 3, 7)
        loss = -(target * output.log_softmax(2)).sum(2)
    (gradient,) = torch.autograd.grad((loss * weight).sum(), output)
    ours = torch.empty_like(output)
    value.loss_gradient(output.detach(), target, weight, ours)
    torch.testing.assert_close(ours, gradient, rtol=1e-5, atol=1e-6)
    of_target = 0.0 if value.num_outputs == 1 else (target * target.log()).sum(1)
    error = value.error(output.detach(), target)
    torch.testing.assert_close(value.loss(error), loss.detach() + of_target, rtol=1e-4, atol=1e-5)
    weights = torch.rand(2, 9, generator=source)
    (gradient,) = torch.autograd.grad((expected * weights).sum(), output)
    value.expected_gradient(output.detach(), lambda _: weights, torch.tensor(0.5), ours)
    torch.testing.assert_close(ours, 0.5 * gradient, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value.expected(output.detach()), expected.detach())


@pytest.mark.parametrize("options", [{"weight_decay": 0.1}, {"weight_decay": 0.01, "beta2": 0.95}])
def test_decoupled_weight_decay_is_adamw(options):
    """Against torch's, over several steps; what lies behind the weights decays not at all."""
    flat, gradient = torch.arange(1.0, 7.0), torch.zeros(6)
    peers = [flat[:4].clone().requires_grad_(), flat[4:].clone().requires_grad_()]
    betas = (0.9, options.get("beta2", 0.999))
    adam = FlatAdam(flat, gradient, 0.1, num_decaying=4, **options)
    decays = (options["weight_decay"], 0.0)
    optimizers = [
        torch.optim.AdamW([peer], lr=0.1, betas=betas, weight_decay=decay)
        for peer, decay in zip(peers, decays, strict=True)
    ]
    for step in range(5):
        gradient.copy_(torch.sin(torch.arange(6.0) + step))
        for peer, optimizer, part in zip(peers, optimizers, gradient.split([4, 2]), strict=True):
            peer.grad = part.clone()
            optimizer.step()
        adam.step()
    torch.testing.assert_close(flat, torch.cat(peers).detach())


def test_long_gradients_are_shortened_and_short_ones_are_not():
    """As torch.nn.utils.clip_grad_norm_ does."""
    for length, expected in ((10.0, 2.0), (1.0, 1.0)):
        gradient = torch.tensor([0.6, 0.8]) * length
        adam = FlatAdam(torch.zeros(2), gradient, 0.1, max_gradient_norm=2.0)
        adam.step()
        # The first step's mean is a tenth of the gradient, which is cleared.
        assert 10.0 * adam.state_dict()["mean"].norm().item() == pytest.approx(expected, rel=1e-5)
        assert not gradient.any()


def test_statistics_come_into_use_when_they_are_published():
    """So that both learners and every sampler see the same numbers; the file of a policy holds them too."""
    critic, actor = (make(half, normalize_observations=True) for half in ("critic", "actor"))
    obs = np.random.default_rng(0).normal(5.0, 3.0, (500, 3)).astype(np.float32)
    actor.observe(obs)
    before = actor.state_dict()["observations"]
    assert before["mean"].tolist() == [0.0] * 3
    arrays = actor.policy_arrays()
    np.testing.assert_allclose(arrays["observation_mean"], obs.mean(0), rtol=1e-5)
    np.testing.assert_allclose(arrays["observation_std"], obs.std(0), rtol=1e-5)
    critic.load_policy(arrays, actor.extras())
    ours, theirs = (half.state_dict()["observations"] for half in (actor, critic))
    assert all(torch.equal(ours[name], theirs[name]) for name in ("mean", "std"))
    with pytest.raises(WireError, match="observation_mean"):
        critic.load_policy({"parameters": arrays["parameters"]}, {})


def test_halves_and_samplers_normalise_alike():
    """A policy whose mean is its first input: NumPy's action is that of the rows that the learner sees."""
    actor = make("actor", normalize_observations=True, hidden_sizes=(8,))
    actor.observe(np.random.default_rng(0).normal(2.0, 0.5, (500, 3)).astype(np.float32))
    policy = Policy.from_message({"version": 1, "description": actor.description()}, actor.policy_arrays())
    obs = torch.tensor([[2.0, 1.0, 90.0], [0.0, 3.0, 2.0]])
    rows = actor._spaces.rows(obs)
    assert rows.max() == 10.0
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    flat = torch.from_numpy(actor.parameters())
    for parameter, part in zip(network.parameters(), flat.split([24, 8, 32, 4]), strict=True):
        parameter.data = part.view(parameter.shape)
    with torch.no_grad():
        expected = network(rows)[:, :2].tanh()
    np.testing.assert_allclose(policy.mode(obs.numpy()), expected.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_all_options_together_learn_and_restore(precision):
    """Every option at once, both halves exchanging what they publish; a restored half goes on exactly."""
    try:
        critic, actor = (make(half, precision=precision, **ALL) for half in ("critic", "actor"))
    except InputError:
        pytest.skip("this processor has no bf16")
    batch = make_batch(64)
    losses = []
    for _ in range(150):
        actor.observe(batch.obs.numpy())
        critic.load_policy(actor.policy_arrays(), {**actor.extras(), "temperature": 0.0})
        losses.append(float(critic.update(batch)["critic_loss"]))
        actor.load_critic(critic.parameters())
        metrics = actor.update(batch.obs)
    assert all(math.isfinite(float(value)) for value in metrics.values())
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    for half, experience in ((critic, batch), (actor, batch.obs)):
        name = "critic" if half is critic else "actor"
        other = make(name, seed=9, precision=precision, **ALL)
        other.load_state_dict(half.state_dict())
        for each in (half, other):
            each.update(experience)
        assert np.array_equal(half.parameters(), other.parameters())
    layers = actor.description()["layers"]
    assert [layer["kind"] for layer in layers] == ["linear", "layer_norm", "silu", "linear"]


@pytest.mark.parametrize(
    "options",
    [{}, C51, pytest.param({"precision": "bf16"}, marks=needs_bf16)],
    ids=["scalar", "c51", "bf16"],
)
def test_a_large_batch_in_blocks_is_one_update(options, monkeypatch):
    """5,000 rows are worked on in pieces; the gradient is that of all, and so is each row's priority."""
    batch = make_batch(5000, weight=torch.rand(5000, generator=torch.Generator().manual_seed(3)))
    halves = []
    for rows in (0, 2000):
        monkeypatch.setattr(sac_networks, "block_rows", lambda *_, rows=rows: rows)
        halves.append(make("critic", **options))
        halves[-1].backward(batch)
    whole, pieces = halves
    close = (
        {"rtol": 0.03, "atol": 0.003} if options.get("precision") == "bf16" else {"rtol": 1e-4, "atol": 1e-6}
    )
    torch.testing.assert_close(pieces._critics.gradient, whole._critics.gradient, **close)
    torch.testing.assert_close(pieces.priorities(), whole.priorities())
    assert whole.priorities().shape == (5000,)


def test_rows_are_cut_to_what_a_core_holds():
    """On a CPU; a GPU takes all of them at once."""
    layers, cpu = sac_networks.describe(5, (256, 128), 1, "relu"), torch.device("cpu")
    assert sac_networks.block_rows(layers, torch.float32, cpu) == 512
    assert sac_networks.block_rows(layers, torch.bfloat16, cpu) == 2048
    assert sac_networks.block_rows(layers, torch.float32, torch.device("cuda")) == 0


def test_a_transition_of_weight_zero_teaches_nothing():
    """And one of weight two counts twice: importance weights of a prioritized replay."""
    batch, plain = make_batch(8), make_batch(8)
    batch.weight = torch.tensor([2.0] * 4 + [0.0] * 4)
    for name in ("obs", "action", "reward", "discount", "next_obs"):
        setattr(plain, name, getattr(plain, name)[:4])
    batch.discount.zero_()
    plain.discount = torch.zeros(4)
    weighted, alone = make("critic"), make("critic")
    weighted.backward(batch)
    alone.backward(plain)
    torch.testing.assert_close(weighted._critics.gradient, alone._critics.gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"v_min": 5.0, "v_max": 5.0}, "v_min = 5 must lie below v_max = 5"),
        ({"num_atoms": 0}, "num_atoms: expected a whole number of at least 1, got 0"),
        ({"twin_critics": "max"}, 'twin_critics: expected one of "min", "mean", got "max"'),
        ({"weight_decay": -0.1}, "weight_decay: expected a number of at least 0, got -0.1"),
        (
            {"actor_hidden_sizes": (0,)},
            "actor_hidden_sizes: expected a list of whole numbers of at least 1",
        ),
    ],
)
def test_senseless_values_are_refused(options, message):
    """Before any network is made."""
    with pytest.raises(InputError) as caught:
        SAC.Options(**options)
    assert message in str(caught.value)
