"""What the tests of the shipped algorithms share: an algorithm as the library hands it to its losses."""

from types import SimpleNamespace

import numpy as np
import torch

from spreeze_zmq.envs import EnvironmentSpec

LOW, HIGH = np.array([-1.0, -2.0], np.float32), np.array([1.0, 4.0], np.float32)
BOX = EnvironmentSpec("none", {}, (3,), "float32", "box", (2,), LOW, HIGH)
UNBOUNDED = EnvironmentSpec("none", {}, (3,), "float32", "box", (2,))
DISCRETE = EnvironmentSpec("none", {}, (3,), "float32", "discrete", action_sizes=(4,))
MASKED = EnvironmentSpec("none", {}, (3,), "float32", "discrete", action_sizes=(4,), action_mask=True)
PARTS = (
    {"path": ["image"], "shape": [20, 24, 1], "pixels": True},
    {"path": ["room"], "shape": [], "sizes": [3], "start": [0]},
    {"path": ["vector"], "shape": [2]},
)
IN_PARTS = EnvironmentSpec("none", {}, (485,), "float32", "discrete", action_sizes=(4,), obs_parts=PARTS)
SEVERAL = EnvironmentSpec("none", {}, (3,), "float32", "multi_discrete", (2,), action_sizes=(3, 4))
PIXELS = EnvironmentSpec("none", {}, (4, 84, 84), "uint8", "discrete", action_sizes=(6,))


def make(kind, env, seed=0, **options):
    """With fresh networks as its attributes."""
    torch.manual_seed(seed)
    algorithm = kind(kind.Options(**options), env)
    networks = algorithm.networks()
    for name, network in {**networks.critic, **networks.policy, **networks.targets}.items():
        setattr(algorithm, name, network)
    return algorithm


def parameters(*modules):
    """Of all of them, in order."""
    return [parameter for module in modules for parameter in module.parameters()]


def constant(network, *values):
    """Make a network give these numbers everywhere."""
    linear = [layer for layer in network.modules() if hasattr(layer, "weight") and hasattr(layer, "bias")]
    with torch.no_grad():
        for layer in linear:
            layer.weight.zero_()
            layer.bias.zero_()
        linear[-1].bias.copy_(torch.tensor(values).view(linear[-1].bias.shape))


def transitions(env, size=16, seed=0, weight=None):
    """Random ones, some of them terminal."""
    source = torch.Generator().manual_seed(seed)
    num_inputs = int(np.prod(env.obs_shape))
    if env.action_kind == "box":
        action = torch.rand(size, 2, generator=source) * torch.from_numpy(HIGH - LOW) + torch.from_numpy(LOW)
    else:
        choices = [torch.randint(number, (size, 1), generator=source) for number in env.action_sizes]
        action = torch.cat(choices, 1) if len(choices) > 1 else choices[0][:, 0]
    return SimpleNamespace(
        obs=torch.randn(size, num_inputs, generator=source),
        action=action,
        reward=torch.randn(size, generator=source),
        discount=0.9 * (torch.rand(size, generator=source) < 0.8),
        next_obs=torch.randn(size, num_inputs, generator=source),
        weight=weight,
    )
