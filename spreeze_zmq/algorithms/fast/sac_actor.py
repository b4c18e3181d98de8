"""SAC's actor half: policy and temperature, trained on observations against the newest critics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.fast import sac_networks as networks
from spreeze_zmq.algorithms.fast.lazy_metrics import LazyMetrics
from spreeze_zmq.algorithms.fast.mlp import Mlp
from spreeze_zmq.algorithms.fast.packing import num_parameters
from spreeze_zmq.algorithms.fast.sac_networks import cut
from spreeze_zmq.algorithms.fast.scratch import Numbers, Scratch, Spares, ViewOf
from spreeze_zmq.algorithms.fast.tanh_normal import Draw
from spreeze_zmq.algorithms.interface import Environment
from spreeze_zmq.algorithms.observations import RunningStatistics
from spreeze_zmq.algorithms.precision import allow_tf32, compute_dtype
from spreeze_zmq.algorithms.sac import SACOptions
from spreeze_zmq.device import Staging, captured


class SACActor:
    """Policy improvement (arXiv 1812.05905, equation 9) and automatic temperature (equation 18).

    The log temperature is the last element of the policy's flat buffer, so that one optimiser step moves
    both. Its loss is -log(temperature) * (log prob + target entropy): equation 18 with the logarithm in the
    factor's place, whose gradient keeps its size when the temperature is small.
    """

    def __init__(self, options: SACOptions, env: Environment, device: str, seed: int):
        self._device = torch.device(device)
        self._options = options
        self._spaces = spaces = networks.Spaces(options, env, self._device)
        dtype = compute_dtype(options.precision, self._device)
        allow_tf32(options.precision, self._device)
        spares = Spares(dtype, self._device)
        self._layers = networks.policy_layers(options, spaces)
        self._size = num_parameters(self._layers)
        log_temperature = torch.tensor([math.log(options.initial_temperature)])
        self._flat = torch.cat((networks.first_policy(options, spaces, seed), log_temperature)).to(
            self._device
        )
        self._gradient = torch.zeros_like(self._flat)
        weights, gradient = self._flat[: self._size], self._gradient[: self._size]
        self._log_temperature = self._flat[self._size :]
        self._temperature = torch.empty_like(self._log_temperature)  # of the last update
        self._temperature_gradient = self._gradient[self._size :].view(1, 1)
        self._adam = networks.adam(options, self._flat, self._gradient, self._size)
        critics = networks.first_critics(options, spaces, seed).to(self._device)
        layers = networks.critic_layers(options, spaces)
        action = slice(spaces.num_inputs, None)
        self._critics = Mlp(layers, critics, None, networks.NUM_CRITICS, dtype, spares, columns=action)
        self._input = networks.JoinedInput(spaces, self._critics)
        acting = self._input.observations
        self._policy = Mlp(self._layers, weights, gradient, 1, dtype, spares, by_output=True, input_of=acting)
        self._value = networks.critic_value(options, self._device)
        self._parts = Scratch(torch.float32, self._device)
        self._twins, self._twin_parts = ViewOf(torch.unbind), ViewOf(torch.unbind)
        self._numbers = Numbers(self._device)
        self._only = ViewOf(lambda output: output[0])
        self._distribution = networks.distribution(options, spaces, self._device)
        entropy = options.target_entropy
        target_entropy = -float(spaces.num_actions) if entropy == "auto" else float(entropy)
        self._minus_target_entropy = torch.full((1, 1), -target_entropy, device=self._device)
        self._generator = networks.generator(seed, networks.ACTOR_NOISE, self._device)
        self._block_rows = networks.block_rows(layers, dtype, self._device)
        self._statistics = RunningStatistics(env)
        self._staging = Staging(self._device)
        self._launch = captured(self._update, self._device, [self._generator])
        self.num_updates = 0

    @property
    def weights(self) -> torch.Tensor:
        """The policy's parameters, and the log temperature behind them."""
        return self._flat

    def load_critic(self, parameters: NDArray[np.float32]) -> None:
        """Take published critics. Raises WireError where they do not fit."""
        networks.load_flat(self._critics.parameters, parameters, "critics", self._staging)
        self._critics.refresh()

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with another ``learning_rate``."""
        self._adam.learning_rate = rates["learning_rate"]
        # A graph keeps the numbers that it was made with.
        self._launch = captured(self._update, self._device, [self._generator])

    def observe(self, obs: NDArray[Any]) -> None:
        """Take observations ``[M, *obs_shape]`` into the statistics, which go into use when published."""
        if self._spaces.rows.learned:
            self._statistics.add(obs)

    def update(self, obs: torch.Tensor) -> LazyMetrics:
        """One step of policy and temperature; metrics ``actor_loss``, ``entropy`` and ``temperature``."""
        metrics = self._launch(obs)
        self.num_updates += 1
        return metrics

    @torch.inference_mode()
    def _update(self, obs: torch.Tensor) -> LazyMetrics:
        """What happens on the device, and nothing else."""
        size = obs.shape[0]
        temperature = torch.exp(self._log_temperature, out=self._temperature)
        entropy_gradient = temperature * self._numbers(-1.0 / size)
        step = self._block_rows or size
        for start in range(0, size, step):
            rows = slice(start, min(start + step, size))
            draw, output = self._improve(cut(obs, rows), size, entropy_gradient, start > 0)
            if self._options.learn_temperature:
                so_far = self._temperature_gradient if start else self._minus_target_entropy
                self._distribution.add_entropy(draw, 1.0 / size, so_far, self._temperature_gradient)
        self._adam.step()
        self._policy.refresh()

        # Of the last block, whose rows are as random as any.
        def value() -> torch.Tensor:
            values = self._value.expected(output)
            return self._chosen(values).mul(values).sum(0).mean()

        def entropy() -> torch.Tensor:
            return -draw.log_prob.mean()

        return LazyMetrics(
            actor_loss=lambda: -temperature[0] * entropy() - value(),
            entropy=entropy,
            temperature=lambda: temperature[0],
        )

    def _improve(
        self, obs: torch.Tensor, size: int, entropy_gradient: torch.Tensor, add: bool
    ) -> tuple[Draw, torch.Tensor]:
        """The gradient of the mean of temperature * log prob - value for some rows of a batch of ``size``.

        Returns:
            The actions, and the critics' output for them.
        """
        num_rows = obs.shape[0]
        observations = self._input.observations(num_rows)
        observations.copy_(self._spaces.rows(obs))
        draw = self._distribution.draw(self._only(self._policy.forward(observations)), self._generator)
        output = self._critics.forward(self._input.joined(draw.action))
        gradient = self._critics.output_gradient(num_rows)
        self._value.expected_gradient(output, self._chosen, self._numbers(-1.0 / size), gradient)
        action = self._critics.input_gradient(gradient)
        gradient = self._policy.output_gradient(num_rows)
        self._distribution.backward(draw, action, entropy_gradient, self._only(gradient))
        self._policy.backward(gradient, add)
        return draw, output

    def _chosen(self, values: torch.Tensor) -> torch.Tensor:
        """``[2, b]``: each critic's part in the value of an action; holds until the next call."""
        if self._options.twin_critics == "mean":
            return torch.full_like(values, 0.5)
        first, second = self._twins(values)
        chosen = self._parts(*values.shape)
        first_part, second_part = self._twin_parts(chosen)
        torch.le(first, second, out=first_part)
        torch.add(self._numbers(1.0), first_part, alpha=-1.0, out=second_part)
        return chosen

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
            "observation": self._spaces.rows.description(),
        }

    def policy_arrays(self, weights: NDArray[np.float32] | None = None) -> dict[str, NDArray[np.float32]]:
        """Every array of a policy message; the statistics in it are those that updates use from now on."""
        if self._statistics.count:
            self._spaces.rows.adopt(self._statistics.arrays())
        bounds = {"action_low": self._spaces.low, "action_high": self._spaces.high}
        parameters = self.parameters() if weights is None else weights[: self._size]
        return {"parameters": parameters, **bounds, **self._spaces.rows.arrays()}

    def extras(self, weights: NDArray[np.float32] | None = None) -> dict[str, float]:
        """``temperature``."""
        return {"temperature": math.exp(float((self._flat if weights is None else weights)[self._size]))}

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on."""
        return {
            "policy": self._flat.clone(),
            "critics": self._critics.parameters.clone(),
            "observations": self._spaces.rows.state_dict(),
            "statistics": self._statistics.state_dict(),
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
        self._spaces.rows.load_state_dict(state["observations"])
        self._statistics.load_state_dict(state["statistics"])
        self._adam.load_state_dict(state["adam"])
        self._generator.set_state(state["generator"].cpu())
        self.num_updates = int(state["num_updates"])
