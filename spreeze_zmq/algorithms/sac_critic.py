"""SAC's critic half: twin critics and their slow targets, trained towards what the newest policy is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms import sac_networks as networks
from spreeze_zmq.algorithms.flat_adam import FlatAdam
from spreeze_zmq.algorithms.interface import Batch, Environment
from spreeze_zmq.algorithms.mlp import Mlp
from spreeze_zmq.algorithms.precision import compute_dtype
from spreeze_zmq.algorithms.sac import SACOptions


class SACCritic:
    """Soft policy evaluation (arXiv 1812.05905, equations 5 and 6), with the minimum of two target critics.

    The flat ``parameters()`` hold both critics, layer by layer: weight ``[2, out, in]`` then bias ``[2,
    out]``.
    """

    def __init__(self, options: SACOptions, env: Environment, device: str, seed: int):
        self._device = torch.device(device)
        self._tau = options.tau
        self._spaces = spaces = networks.Spaces(env, self._device)
        dtype = compute_dtype(options.precision, self._device)
        layers = networks.critic_layers(options, spaces)
        parameters = networks.first_critics(options, spaces, seed).to(self._device)
        gradient = torch.zeros_like(parameters)
        self._critics = Mlp(layers, parameters, gradient, networks.NUM_CRITICS, dtype)
        self._targets = Mlp(layers, parameters.clone(), None, networks.NUM_CRITICS, dtype)
        self._adam = FlatAdam(parameters, gradient, options.learning_rate)
        policy = networks.first_policy(options, spaces, seed).to(self._device)
        self._policy = Mlp(networks.policy_layers(options, spaces), policy, dtype=dtype)
        self._distribution = networks.distribution(options, spaces)
        self._temperature = torch.tensor(options.initial_temperature, device=self._device)
        self._generator = networks.generator(seed, networks.CRITIC_NOISE, self._device)
        self._input = networks.JoinedInput(spaces, dtype, self._device)
        self._next_input = networks.JoinedInput(spaces, dtype, self._device)
        self.num_updates = 0

    def load_policy(self, parameters: NDArray[np.float32], extras: Mapping[str, float]) -> None:
        """Take a published policy and its temperature. Raises WireError where they do not fit."""
        networks.load_flat(self._policy.parameters, parameters, "a policy")
        self._policy.refresh()
        if "temperature" in extras:
            self._temperature.fill_(float(extras["temperature"]))

    @torch.no_grad()
    def update(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One step of both critics; metrics ``critic_loss``, ``q_mean`` and ``target_mean``."""
        target = self.target(batch)
        value = self._critics.forward(
            self._input(self._spaces.flat_obs(batch.obs), self._spaces.unit_action(batch.action))
        )
        error = value.squeeze(2) - target  # [2, B]
        # Loss: the sum over the critics of half the mean squared error.
        self._critics.backward((error / error.shape[1]).unsqueeze(2).to(value.dtype))
        self._adam.step()
        self._critics.refresh()
        self._targets.parameters.lerp_(self._critics.parameters, self._tau)
        self._targets.refresh()
        self.num_updates += 1
        return {
            "critic_loss": error.square().mean(),
            "q_mean": (error.mean() + target.mean()),
            "target_mean": target.mean(),
        }

    @torch.no_grad()
    def target(self, batch: Batch) -> torch.Tensor:
        """``[B]``: reward + discount * (lower target - temperature * log prob); equation 3, ``n`` steps."""
        next_obs = self._spaces.flat_obs(batch.next_obs)
        draw = self._distribution.draw(self._policy.forward(next_obs)[0].float(), self._generator)
        values = self._targets.forward(self._next_input(next_obs, draw.action))
        soft_value = torch.amin(values.squeeze(2), 0).float() - self._temperature * draw.log_prob
        return torch.addcmul(batch.reward, batch.discount, soft_value)

    def parameters(self) -> NDArray[np.float32]:
        """A fresh flat copy of both critics, without their targets."""
        return networks.export_flat(self._critics.parameters)

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on."""
        return {
            "critics": self._critics.parameters.clone(),
            "targets": self._targets.parameters.clone(),
            "policy": self._policy.parameters.clone(),
            "temperature": self._temperature.clone(),
            "adam": self._adam.state_dict(),
            "generator": self._generator.get_state(),
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        for network, name in (
            (self._critics, "critics"),
            (self._targets, "targets"),
            (self._policy, "policy"),
        ):
            network.parameters.copy_(state[name])
            network.refresh()
        self._temperature.copy_(state["temperature"])
        self._adam.load_state_dict(state["adam"])
        self._generator.set_state(state["generator"].cpu())
        self.num_updates = int(state["num_updates"])
