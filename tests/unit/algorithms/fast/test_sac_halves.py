"""Soft actor-critic: its equations against literal numbers and autograd, its exchange and its state."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, relu, softplus

from spreeze_zmq.algorithms import fast
from spreeze_zmq.algorithms.fast.packing import num_parameters
from spreeze_zmq.algorithms.sac import SAC
from spreeze_zmq.errors import InputError, WireError

pytestmark = pytest.mark.usefixtures("one_thread")

ENVIRONMENT = SimpleNamespace(
    obs_shape=(3,),
    obs_dtype="float32",
    action_kind="box",
    action_shape=(2,),
    action_low=np.array([-1.0, -2.0], np.float32),
    action_high=np.array([1.0, 4.0], np.float32),
)
SMALL = {"hidden_sizes": (8, 6), "precision": "fp32", "batch_size": 16}


def make_critic(seed=0, **options):
    """A critic half of small networks."""
    return fast.make_critic(SAC.Options(**{**SMALL, **options}), ENVIRONMENT, "cpu", seed)


def make_actor(seed=0, **options):
    """An actor half of small networks."""
    return fast.make_policy(SAC.Options(**{**SMALL, **options}), ENVIRONMENT, "cpu", seed)


def make_batch(size=16, seed=0):
    """Random transitions."""
    source = torch.Generator().manual_seed(seed)
    return SimpleNamespace(
        obs=torch.randn(size, 3, generator=source),
        action=torch.rand(size, 2, generator=source) * torch.tensor([2.0, 6.0]) - torch.tensor([1.0, 2.0]),
        reward=torch.randn(size, generator=source),
        discount=torch.full((size,), 0.9),
        next_obs=torch.randn(size, 3, generator=source),
        weight=None,
    )


def constant_critics(half, low, high):
    """Flat parameters of critics that give ``low`` and ``high`` everywhere."""
    flat = np.zeros_like(half.parameters())
    flat[-2:] = (low, high)
    return flat


def networks(flat, layers, num_networks):
    """Weights and biases of each network, as leaf tensors."""
    tensors, offset = [[] for _ in range(num_networks)], 0
    for inputs, outputs in layers:
        for shape in ((outputs, inputs), (outputs,)):
            for network in tensors:
                size = math.prod(shape)
                network.append(flat[offset : offset + size].view(shape).clone().requires_grad_())
                offset += size
    assert offset == len(flat)
    return tensors


def evaluate(tensors, x):
    """A relu network of three layers."""
    for weight, bias in zip(tensors[0:-2:2], tensors[1:-2:2], strict=True):
        x = relu(linear(x, weight, bias))
    return linear(x, tensors[-2], tensors[-1])


def sample(output, noise):
    """Action in [-1, 1] and log density, as the paper writes them."""
    mean, raw = output.chunk(2, dim=1)
    log_std = -5.0 + 3.5 * (raw.tanh() + 1.0)
    u = mean + log_std.exp() * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return u.tanh(), (log_prob - 2 * (math.log(2) - u - softplus(-2 * u))).sum(1)


CRITIC_SHAPE = ((5, 8), (8, 6), (6, 1))
POLICY_SHAPE = ((3, 8), (8, 6), (6, 4))


def test_the_target_takes_the_lower_critic_and_the_entropy():
    """reward + discount * (min of 3 and 7 - temperature * log prob)."""
    half = make_critic()
    state = half.state_dict()
    state["targets"] = torch.from_numpy(constant_critics(half, 7.0, 3.0))
    state["temperature"] = torch.tensor(0.5)
    half.load_state_dict(state)
    batch = make_batch(4)
    batch.reward = torch.tensor([1.0, 2.0, 3.0, 4.0])
    batch.discount = torch.tensor([0.9, 0.0, 0.5, 0.9])
    target = half.target(batch)

    noise = torch.empty(2, 4).normal_(generator=torch.Generator().set_state(state["generator"])).T
    (policy,) = networks(state["policy"], POLICY_SHAPE, 1)
    _, log_prob = sample(evaluate(policy, batch.next_obs), noise)
    expected = batch.reward + batch.discount * (3.0 - 0.5 * log_prob)
    torch.testing.assert_close(target, expected.detach())
    assert target[1].item() == 2.0


def test_a_critic_update_is_the_gradient_of_half_the_squared_error():
    """Against autograd and torch's Adam, both at once; then the targets follow by tau."""
    half, batch = make_critic(tau=0.25, learning_rate=0.01), make_batch()
    state = half.state_dict()
    reference = make_critic(tau=0.25, learning_rate=0.01)
    target = reference.target(batch)
    twins = networks(state["critics"], CRITIC_SHAPE, 2)
    # Actions reach the critics scaled to [-1, 1]: bounds are [-1, 1] and [-2, 4].
    unit = (batch.action - torch.tensor([0.0, 1.0])) / torch.tensor([1.0, 3.0])
    loss = sum(
        0.5 * (evaluate(twin, torch.cat((batch.obs, unit), 1))[:, 0] - target).square().mean()
        for twin in twins
    )
    adam = torch.optim.Adam([tensor for twin in twins for tensor in twin], lr=0.01)
    loss.backward()
    adam.step()
    half.update(batch)

    pairs = zip(*twins, strict=True)
    expected = torch.cat([tensor.detach().reshape(-1) for pair in pairs for tensor in pair])
    torch.testing.assert_close(torch.from_numpy(half.parameters()), expected, rtol=1e-4, atol=1e-5)
    moved = state["targets"] + 0.25 * (torch.from_numpy(half.parameters()) - state["targets"])
    torch.testing.assert_close(half.state_dict()["targets"], moved)
    assert half.num_updates == 1


def test_an_actor_update_is_the_gradient_of_equation_9():
    """temperature * log prob - lower critic, against autograd; the critics stay where they are."""
    half, batch = make_actor(learning_rate=0.01), make_batch()
    state = half.state_dict()
    (policy,) = networks(state["policy"][:-1], POLICY_SHAPE, 1)
    twins = networks(state["critics"], CRITIC_SHAPE, 2)
    noise = torch.empty(2, 16).normal_(generator=torch.Generator().set_state(state["generator"])).T
    action, log_prob = sample(evaluate(policy, batch.obs), noise)
    values = torch.stack([evaluate(twin, torch.cat((batch.obs, action), 1))[:, 0] for twin in twins])
    adam = torch.optim.Adam(policy, lr=0.01)
    (0.1 * log_prob - values.amin(0)).mean().backward()
    adam.step()
    metrics = half.update(batch.obs)

    expected = torch.cat([tensor.detach().reshape(-1) for tensor in policy])
    torch.testing.assert_close(torch.from_numpy(half.parameters()), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(half.state_dict()["critics"], state["critics"])
    assert metrics["entropy"].item() == pytest.approx(-log_prob.mean().item(), rel=1e-5)


@pytest.mark.parametrize(("target_entropy", "direction"), [(100.0, 1), (-100.0, -1)])
def test_the_temperature_rises_where_entropy_lacks(target_entropy, direction):
    """And falls where there is more than the target; Adam's first step is the learning rate."""
    half = make_actor(target_entropy=target_entropy, learning_rate=0.01)
    half.update(make_batch().obs)
    assert half.extras()["temperature"] == pytest.approx(0.1 * math.exp(0.01 * direction), rel=1e-4)


def test_a_fixed_temperature_stays():
    """learn_temperature = False."""
    half = make_actor(learn_temperature=False)
    half.update(make_batch().obs)
    assert half.extras()["temperature"] == pytest.approx(0.1)


def test_automatic_target_entropy_is_minus_the_number_of_actions():
    """With that target given by hand, nothing changes."""
    first, second = make_actor(), make_actor(target_entropy=-2.0)
    for half in (first, second):
        half.update(make_batch().obs)
    assert first.extras() == second.extras()


def test_the_halves_start_from_the_same_networks():
    """So that the first exchange changes nothing, and one seed is one run."""
    critic, actor = make_critic(seed=3), make_actor(seed=3)
    assert np.array_equal(critic.state_dict()["policy"].numpy(), actor.parameters())
    assert np.array_equal(actor.state_dict()["critics"].numpy(), critic.parameters())
    assert not np.array_equal(make_actor(seed=4).parameters(), actor.parameters())


def test_published_weights_arrive_exactly():
    """Out of one half as a flat array, read-only as from the wire, into the other."""
    critic, actor = make_critic(), make_actor()
    critic.update(make_batch())
    actor.update(make_batch().obs)
    weights, policy = critic.parameters(), actor.parameters()
    weights.flags.writeable = policy.flags.writeable = False
    actor.load_critic(weights)
    critic.load_policy({"parameters": policy}, actor.extras())
    assert np.array_equal(actor.state_dict()["critics"].numpy(), critic.parameters())
    assert np.array_equal(critic.state_dict()["policy"].numpy(), actor.parameters())
    assert critic.state_dict()["temperature"].item() == pytest.approx(actor.extras()["temperature"])


def test_exported_weights_are_copies():
    """ZeroMQ may still hold a message while the next update runs."""
    half = make_critic()
    weights = half.parameters()
    before = weights.copy()
    half.update(make_batch())
    assert np.array_equal(weights, before)


def test_weights_of_another_shape_are_refused():
    """Learners that were started with different options say so."""
    with pytest.raises(WireError, match="same algorithm options"):
        make_actor().load_critic(make_critic(hidden_sizes=(9,)).parameters())
    with pytest.raises(WireError, match="float64"):
        make_critic().load_policy({"parameters": make_actor().parameters().astype(np.float64)}, {})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_restored_half_goes_on_bit_for_bit(tmp_path, precision):
    """Through a file that needs no pickled code, noise included."""
    for make, experience in ((make_critic, make_batch()), (make_actor, make_batch().obs)):
        try:
            half = make(seed=1, precision=precision)
        except InputError:
            pytest.skip("this processor has no bf16")
        for _ in range(3):
            half.update(experience)
        torch.save(half.state_dict(), tmp_path / "half.pt")
        other = make(seed=2, precision=precision)
        other.load_state_dict(torch.load(tmp_path / "half.pt", weights_only=True))
        for _ in range(3):
            metrics, again = half.update(experience), other.update(experience)
            assert {name: value.item() for name, value in metrics.items()} == {
                name: value.item() for name, value in again.items()
            }
        assert np.array_equal(half.parameters(), other.parameters())
        assert other.num_updates == 6


def test_a_state_does_not_change_after_it_was_taken():
    """A checkpoint may be written while training goes on."""
    half = make_critic()
    state = half.state_dict()
    before = {name: state[name].clone() for name in ("critics", "targets")}
    half.update(make_batch())
    assert all(torch.equal(state[name], before[name]) for name in before)


def test_the_same_seed_gives_the_same_run():
    """Bit for bit, and another seed does not."""
    runs = []
    for seed in (5, 5, 6):
        critic, actor = make_critic(seed), make_actor(seed)
        for i in range(5):
            critic.update(make_batch(seed=i))
            actor.load_critic(critic.parameters())
            actor.update(make_batch(seed=i).obs)
            critic.load_policy(actor.policy_arrays(), actor.extras())
        runs.append((critic.parameters().tobytes(), actor.parameters().tobytes()))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_metrics_are_numbers_on_the_device():
    """0-d float32, so that nothing has waited for them."""
    for metrics in (make_critic().update(make_batch()), make_actor().update(make_batch().obs)):
        assert all(value.shape == () and value.dtype == torch.float32 for value in metrics.values())


def test_critics_learn_a_known_value():
    """One state, one action, reward 1, gamma 0.5 and no entropy: the value is 2."""
    half = make_critic(learning_rate=0.01, tau=0.1)
    half.load_policy(make_actor().policy_arrays(), {"temperature": 0.0})
    batch = make_batch(1)
    batch.reward, batch.discount = torch.ones(1), torch.full((1,), 0.5)
    batch.next_obs = batch.obs
    batch.action = torch.tensor([[0.0, 1.0]])
    for _ in range(600):
        metrics = half.update(batch)
    assert metrics["q_mean"].item() == pytest.approx(2.0, abs=0.2)


def test_the_policy_moves_towards_the_better_action():
    """Critics that like large actions raise the mean action of a policy without entropy."""
    half = make_actor(
        initial_temperature=1e-6, learn_temperature=False, hidden_sizes=(8,), learning_rate=0.01
    )
    flat = torch.zeros(num_parameters([{"kind": "linear", "in": 5, "out": 8}], 2) + 2 * 9)
    flat[3 : 2 * 40 : 5] = 1.0  # first action into every hidden unit of both critics
    flat[80:96] = 2.0  # hidden biases: the relu stays open
    flat[96:112] = 1.0
    half.load_critic(flat.numpy())
    for _ in range(150):
        half.update(make_batch().obs)
    description, arrays = half.description(), half.policy_arrays()
    from spreeze_zmq.policy import Policy

    policy = Policy.from_message({"version": 1, "description": description}, arrays)
    assert policy.mode(make_batch().obs.numpy())[:, 0].mean() > 0.9


def test_first_actions_lie_about_the_middle():
    """A fresh policy saturates nothing: its mean is at the centre of the bounds."""
    half = make_actor(hidden_sizes=(256, 256))
    from spreeze_zmq.policy import Policy

    policy = Policy.from_message({"version": 1, "description": half.description()}, half.policy_arrays())
    mode = policy.mode(make_batch(64).obs.numpy())
    assert np.abs(mode - np.array([0.0, 1.0])).max() < 0.05


def test_pixels_are_scaled_in_the_half_as_in_the_policy():
    """uint8 observations reach the network as the published normaliser says."""
    env = SimpleNamespace(**{**vars(ENVIRONMENT), "obs_shape": (2, 2, 3), "obs_dtype": "uint8"})
    half = fast.make_policy(SAC.Options(**SMALL), env, "cpu", 0)
    arrays = half.policy_arrays()
    assert half.description()["observation"] == {"shape": [2, 2, 3], "normalize": True, "clip": 10.0}
    assert arrays["observation_mean"].shape == arrays["observation_std"].shape == (12,)
    obs = torch.randint(0, 256, (16, 2, 2, 3), dtype=torch.uint8)
    metrics = half.update(obs)
    assert math.isfinite(metrics["actor_loss"].item())
    rows = (obs.numpy().reshape(16, 12) - arrays["observation_mean"]) / arrays["observation_std"]
    assert rows.min() >= -1.0
    assert rows.max() <= 1.0
