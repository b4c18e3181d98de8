"""The flat buffers of a learner's networks hold what its losses compute with, whatever these do to them."""

import pytest
import torch

from spreeze_zmq import algorithms, envs, nn
from spreeze_zmq.algorithms import Algorithm, Loss, Networks, ReplayOptions, gradient_steps
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.base.errors import AlgorithmError
from spreeze_zmq.commands.bench.trial import random_batch

pytestmark = pytest.mark.usefixtures("one_thread")

CARTPOLE = envs.probe("CartPole-v1")


class Regression(Algorithm):
    """A network ``q`` that follows fixed targets ``t``."""

    class Options(ReplayOptions):
        """None of its own."""

    def networks(self):
        """Two small ones."""
        return Networks(critic={"q": nn.mlp([4, 8, 2])}, targets={"t": nn.mlp([4, 8, 2])}, acting="q")

    def distribution(self):
        """Of two actions."""
        return EpsilonGreedy(self.env, 0.1)

    def critic_loss(self, batch):
        """A regression."""
        return Loss((self.q(batch.obs) - self.t(batch.obs) - 1.0).square().mean())

    def after_critic_step(self):
        """Nothing."""


def half_of(kind, **options):
    """Its critic half."""
    return algorithms.make("critic", kind, kind.Options(precision="fp32", **options), CARTPOLE, "cpu", 1)


def flat_of(*modules):
    """Their parameters, one after the other."""
    return torch.cat([each.detach().flatten() for module in modules for each in module.parameters()])


def trained(half, num=5):
    """After some updates on the same batch."""
    batch = random_batch(CARTPOLE, 16)
    for _ in range(num):
        half.update(batch)
    return half


class Shared(Regression):
    """Its encoder is a network, and the first layers of another one."""

    def networks(self):
        """The encoder in two networks, in both groups."""
        layers = [nn.mlp([4, 8]), torch.nn.ReLU()], [nn.mlp([4, 8]), torch.nn.ReLU()]
        whole = [torch.nn.Sequential(*each, torch.nn.Linear(8, 2)) for each in layers]
        return Networks(
            critic={"encoder": layers[0][0], "q": whole[0]},
            targets={"t_encoder": layers[1][0], "t": whole[1]},
            acting="q",
        )

    def after_critic_step(self):
        """The targets follow."""
        nn.polyak(self.t, self.q, 0.5)


def test_a_layer_of_two_networks_is_laid_out_once():
    """The weights that act are those that are trained."""
    half = half_of(Shared)
    first = half.weights.clone()
    trained(half)
    acts = half.policy_arrays()["parameters"]
    assert torch.equal(torch.from_numpy(acts), flat_of(half.algorithm.q))
    assert len(acts) == len(half.weights) == len(first)
    assert (half.weights != first).any()
    assert torch.equal(half.state_dict()["targets"], flat_of(half.algorithm.t_encoder, half.algorithm.t[-1]))


class Scaled(Regression):
    """Its acting network has a single number before its weights."""

    def networks(self):
        """The number is 8, where nothing moves it."""
        q = nn.mlp([4, 8, 2])
        q.scale = torch.nn.Parameter(torch.tensor(8.0))
        return Networks(critic={"q": q, "v": torch.nn.Sequential(nn.Number(8.0), nn.mlp([4, 2]))}, acting="q")

    def critic_loss(self, batch):
        """Without a gradient."""
        return 0.0 * flat_of_graph(self.q, self.v)


def flat_of_graph(*modules):
    """The sum of their parameters."""
    return torch.stack([each.sum() for module in modules for each in module.parameters()]).sum()


@pytest.mark.parametrize("apart", [{}, {"learning_rate": {"critic": 0.1, "v": 0.1}}])
def test_a_number_does_not_decay_wherever_it_stands(apart):
    """Of the acting network, and of another; all weights do."""
    half = half_of(Scaled, **{"learning_rate": 0.1, **apart}, weight_decay=0.5)
    before = half.weights.clone()
    trained(half, 1)
    kept = half.weights == before
    assert kept.sum() == 2
    assert (half.weights[kept] == 8.0).all()
    torch.testing.assert_close(half.weights[~kept], before[~kept] * 0.95)


class Cleared(Regression):
    """Clears its gradients as one does before a backward pass."""

    def critic_loss(self, batch):
        """To none, not to zero."""
        self.q.zero_grad()
        return super().critic_loss(batch)


@pytest.fixture(params=["replayed", "plain"])
def how(request, monkeypatch):
    """Updates that are recorded, and plain ones."""
    if request.param == "plain":
        monkeypatch.setattr(gradient_steps, "captured", lambda function, *_: function)
    return request.param


@pytest.mark.usefixtures("how")
def test_a_loss_may_clear_the_gradients():
    """The same bits as without."""
    expected = trained(half_of(Regression), 12).weights
    assert torch.equal(trained(half_of(Cleared), 12).weights, expected)


class Following(Regression):
    """Moves the targets and the network by assigning tensors, parameters or layers; as in ``how``."""

    how = staticmethod(lambda algorithm: None)

    def after_critic_step(self):
        """Towards the network, which is bounded."""
        self.how(self)


def moved(target, source):
    """A quarter of the way."""
    return 0.75 * target.data + 0.25 * source.data


def by_data(algorithm):
    """New memory for the targets, and for the network."""
    for target, source in zip(algorithm.t.parameters(), algorithm.q.parameters(), strict=True):
        target.data = moved(target, source)
        source.data = source.data.clamp(-0.3, 0.3)


def by_assigned_state(algorithm):
    """New parameters for the targets, and for the network."""
    pairs = zip(algorithm.t.named_parameters(), algorithm.q.parameters(), strict=True)
    algorithm.t.load_state_dict({name: moved(t, q) for (name, t), q in pairs}, assign=True)
    bounded = {name: value.clamp(-0.3, 0.3) for name, value in algorithm.q.state_dict().items()}
    algorithm.q.load_state_dict(bounded, assign=True)


def by_layers(algorithm):
    """New layers."""
    for at in (0, 2):
        layers = [torch.nn.Linear(*reversed(algorithm.t[at].weight.shape)) for _ in range(2)]
        for new, old, other in zip(*layers_of(layers, algorithm, at), strict=True):
            new.data.copy_(moved(old, other) if other is not None else old.data.clamp(-0.3, 0.3))
        algorithm.t[at], algorithm.q[at] = layers


def layers_of(layers, algorithm, at):
    """The new parameters, the old ones, and those that they follow."""
    t, q = (list(network[at].parameters()) for network in (algorithm.t, algorithm.q))
    return [each for layer in layers for each in layer.parameters()], [*t, *q], [*q, None, None]


def in_place(algorithm):
    """As it is written best."""
    for target, source in zip(algorithm.t.parameters(), algorithm.q.parameters(), strict=True):
        target.data.copy_(moved(target, source))
        source.data.clamp_(-0.3, 0.3)


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("how_moved", [by_data, by_assigned_state, by_layers])
def test_tensors_that_are_assigned_are_trained_and_saved(how_moved):
    """To the bits of the same in place."""
    states = []
    for each in (in_place, how_moved):
        half = half_of(type("Moved", (Following,), {"how": staticmethod(each)}), learning_rate=1e-2)
        first = half.state_dict()
        trained(half, 30)
        states.append(half.state_dict())
        assert torch.equal(half.weights, flat_of(half.algorithm.q))
        assert torch.equal(states[-1]["targets"], flat_of(half.algorithm.t))
        assert (states[-1]["targets"] != first["targets"]).all()
    for name in ("own", "targets"):
        assert torch.equal(states[0][name], states[1][name])


class Bounded(Regression):
    """Bounds its network in its loss."""

    def critic_loss(self, batch):
        """New memory in each update."""
        for parameter in self.q.parameters():
            parameter.data = parameter.data.clamp(-0.4, 0.4)
        return super().critic_loss(batch)


@pytest.mark.usefixtures("how")
def test_a_loss_may_assign_data():
    """The step follows, from there."""
    half = half_of(Bounded, learning_rate=1e-2)
    first = half.weights.clone().clamp(-0.4, 0.4)
    trained(half, 1)
    assert torch.equal(half.weights, flat_of(half.algorithm.q))
    assert ((half.weights - first).abs() > 5e-3).any()
    trained(half, 30)
    assert torch.equal(half.weights, flat_of(half.algorithm.q))
    assert half.weights.abs().max() <= 0.41 + 1e-6


CHANGED = {
    "t.2.weight has become float32": lambda a: a.t.__setitem__(2, torch.nn.Linear(8, 3)),
    "q.0.bias has become float32": lambda a: setattr(a.q[0].bias, "data", torch.zeros(1)),
    "q.2.bias is gone": lambda a: a.q.__setitem__(2, torch.nn.Linear(8, 2, bias=False)),
    "q.3.weight is new": lambda a: a.q.append(torch.nn.Linear(2, 2, bias=False)),
}


@pytest.mark.parametrize(("said", "change"), CHANGED.items(), ids=CHANGED)
def test_a_network_that_changes_its_size_is_refused(said, change):
    """By the name of the tensor."""
    half = half_of(type("Changed", (Following,), {"how": staticmethod(change)}))
    with pytest.raises(AlgorithmError, match=f"after_critic_step: .*{said}"):
        trained(half, 1)


class Beside(Regression):
    """Follows a network that nobody is told of."""

    def networks(self):
        """It is no module of the algorithm's groups."""
        self.hidden = nn.mlp([4, 8, 2]).requires_grad_(False)
        return super().networks()

    def critic_loss(self, batch):
        """A regression on it."""
        return Loss((self.q(batch.obs) - self.hidden(batch.obs)).square().mean())

    count = 0

    def after_critic_step(self):
        """New memory for it, once updates are replayed."""
        self.count += 1
        if self.count % 8:
            return
        for target, source in zip(self.hidden.parameters(), self.q.parameters(), strict=True):
            target.data = moved(target, source)


def test_a_network_beside_the_groups_is_read_where_it_is(monkeypatch):
    """Replays give the bits of plain updates."""
    weights = []
    for captured in (gradient_steps.captured, lambda function, *_: function):
        monkeypatch.setattr(gradient_steps, "captured", captured)
        weights.append(trained(half_of(Beside, learning_rate=1e-2), 30).weights)
    assert torch.equal(*weights)
