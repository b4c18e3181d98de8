"""SAC's actor half: policy and temperature, trained on observations against the newest critics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms import sac_networks as networks
from spreeze_zmq.algorithms.flat_adam import FlatAdam
from spreeze_zmq.algorithms.interface import Environment
from spreeze_zmq.algorithms.mlp import Mlp, num_parameters
from spreeze_zmq.algorithms.precision import compute_dtype
from spreeze_zmq.algorithms.sac import SACOptions
from spreeze_zmq.algorithms.tanh_normal import Draw


class SACActor:
    """Policy improvement (arXiv 1812.05905, equation 9) and automatic temperature (equation 18).

    The log temperature is the last element of the policy's flat buffer, so that one optimiser step moves
    both. Its loss is -log(temperature) * (log prob + target entropy): equation 18 with the logarithm in the
    factor's place, whose gradient keeps its size when the temperature is small.
    """

    def __init__(self, options: SACOptions, env: Environment, device: str, seed: int):
        self._device = torch.device(device)
        self._options = options
        self._spaces = spaces = networks.Spaces(env, self._device)
        dtype = compute_dtype(options.precision, self._device)
        self._layers = networks.policy_layers(options, spaces)
        self._size = num_parameters(self._layers)
        log_temperature = torch.tensor([math.log(options.initial_temperature)])
        self._flat = torch.cat((networks.first_policy(options, spaces, seed), log_temperature)).to(
            self._device
        )
        self._gradient = torch.zeros_like(self._flat)
        self._policy = Mlp(self._layers, self._flat[: self._size], self._gradient[: self._size], dtype=dtype)
        self._adam = FlatAdam(self._flat, self._gradient, options.learning_rate)
        critics = networks.first_critics(options, spaces, seed).to(self._device)
        layers = networks.critic_layers(options, spaces)
        self._critics = Mlp(layers, critics, None, networks.NUM_CRITICS, dtype)
        self._distribution = networks.distribution(options, spaces)
        entropy = options.target_entropy
        self._target_entropy = -float(spaces.num_actions) if entropy == "auto" else float(entropy)
        self._generator = networks.generator(seed, networks.ACTOR_NOISE, self._device)
        self._input = networks.JoinedInput(spaces, dtype, self._device)
        self.num_updates = 0

    def load_critic(self, parameters: NDArray[np.float32]) -> None:
        """Take published critics. Raises WireError where they do not fit."""
        networks.load_flat(self._critics.parameters, parameters, "critics")
        self._critics.refresh()

    @torch.no_grad()
    def update(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """One step of policy and temperature; metrics ``actor_loss``, ``entropy`` and ``temperature``."""
        rows = self._spaces.flat_obs(obs)
        draw = self._distribution.draw(self._policy.forward(rows)[0].float(), self._generator)
        values = self._critics.forward(self._input(rows, draw.action)).squeeze(2)  # [2, B]
        temperature = self._flat[self._size :].exp()  # [1]
        log_prob = draw.log_prob.mean()
        self._policy.backward(self._output_gradient(draw, values, temperature))
        if self._options.learn_temperature:
            self._gradient[self._size] = -(log_prob + self._target_entropy)
        self._adam.step()
        self._policy.refresh()
        self.num_updates += 1
        return {
            "actor_loss": (temperature[0] * log_prob).sub_(torch.amin(values, 0).float().mean()),
            "entropy": -log_prob,
            "temperature": temperature[0],
        }

    def _output_gradient(self, draw: Draw, values: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        """``[1, B, 2 A]``: the mean of temperature * log prob - lower critic, by the policy's output."""
        batch_size = values.shape[1]
        first = values[0] <= values[1]
        chosen = torch.stack((first, ~first)).to(values.dtype).mul_(-1.0 / batch_size).unsqueeze(2)
        action = self._critics.input_gradient(chosen)[:, :, self._spaces.num_inputs :].float().sum(0)
        output = self._distribution.backward(draw, action, temperature / batch_size)
        return output.to(values.dtype).unsqueeze(0)

    def parameters(self) -> NDArray[np.float32]:
        """A fresh flat copy of the policy, without the temperature."""
        return networks.export_flat(self._flat[: self._size])

    def description(self) -> dict[str, Any]:
        """The policy's network in plain values."""
        return {
            "layers": self._layers,
            "distribution": {
                "kind": "tanh_normal",
                "log_std": "tanh",
                "log_std_min": self._options.log_std_min,
                "log_std_max": self._options.log_std_max,
            },
            "observation": self._spaces.observation_description(),
        }

    def policy_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Every array of a policy message."""
        bounds = {"action_low": self._spaces.low, "action_high": self._spaces.high}
        return {"parameters": self.parameters(), **bounds, **self._spaces.normalizer()}

    def extras(self) -> dict[str, float]:
        """``temperature``; waits for the device."""
        return {"temperature": math.exp(float(self._flat[self._size]))}

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on."""
        return {
            "policy": self._flat.clone(),
            "critics": self._critics.parameters.clone(),
            "adam": self._adam.state_dict(),
            "generator": self._generator.get_state(),
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self._flat.copy_(state["policy"])
        self._policy.refresh()
        self._critics.parameters.copy_(state["critics"])
        self._critics.refresh()
        self._adam.load_state_dict(state["adam"])
        self._generator.set_state(state["generator"].cpu())
        self.num_updates = int(state["num_updates"])
