"""Algorithms that no table of layers describes."""

import torch

from spreeze_zmq import nn
from spreeze_zmq.algorithms.declarations import Networks
from spreeze_zmq.algorithms.distributions import Normal
from spreeze_zmq.algorithms.sac import SAC


class Gate(torch.nn.Module):
    """A layer that is the policy's own."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.linear, self.gate = (torch.nn.Linear(num_inputs, num_outputs) for _ in range(2))

    def forward(self, x):
        """``[N, num_inputs]`` to ``[N, num_outputs]``."""
        return self.linear(x) * self.gate(x).sigmoid()


class Gated(SAC):
    """SAC with such a policy."""

    def networks(self):
        """The others are SAC's."""
        networks = super().networks()
        policy = Gate(self.env.obs_shape[0], self.actions.num_outputs)
        return Networks(networks.critic, {**networks.policy, "policy": policy}, networks.targets)


class Waving(Gated):
    """It acts by itself."""

    def act(self, obs, greedy):
        """``[N, size]`` to ``[N, 2]``, beyond the bounds too."""
        return self.policy(obs)[:, :2].sin() * 3.0


class Roaming(Waving):
    """It acts where not all actions have bounds."""

    needs_bounds = False

    def __init__(self, options, env):
        super(SAC, self).__init__(options, env)
        self.actions = Normal(env, -5.0, 2.0)


class Hesitating(Gated):
    """It acts as the numbers are, which no tracer follows."""

    def act(self, obs, greedy):
        """``[N, size]`` to ``[N, 2]``."""
        return self.policy(obs)[:, :2] if obs.sum().item() > 0 else nn.Number(0.0)() * obs[:, :2]
