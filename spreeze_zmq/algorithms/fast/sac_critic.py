"""SAC's critic half: twin critics and their slow targets, trained towards what the newest policy is worth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.fast import sac_networks as networks
from spreeze_zmq.algorithms.fast.lazy_metrics import LazyMetrics
from spreeze_zmq.algorithms.fast.mlp import Mlp
from spreeze_zmq.algorithms.fast.sac_networks import cut
from spreeze_zmq.algorithms.fast.scratch import Numbers, Spares, ViewOf
from spreeze_zmq.algorithms.interface import Environment
from spreeze_zmq.algorithms.precision import allow_tf32, compute_dtype
from spreeze_zmq.algorithms.sac import SACOptions
from spreeze_zmq.device import Staging, captured
from spreeze_zmq.replay import Batch


class SACCritic:
    """Soft policy evaluation (arXiv 1812.05905, equations 5 and 6), with two target critics.

    The flat ``parameters()`` hold both critics, layer by layer: weight ``[2, out, in]`` then bias ``[2,
    out]``.
    """

    def __init__(self, options: SACOptions, env: Environment, device: str, seed: int):
        self._device = torch.device(device)
        self._tau = options.tau
        self._spaces = spaces = networks.Spaces(options, env, self._device)
        dtype = compute_dtype(options.precision, self._device)
        allow_tf32(options.precision, self._device)
        spares = Spares(dtype, self._device)
        layers = networks.critic_layers(options, spaces)
        parameters = networks.first_critics(options, spaces, seed).to(self._device)
        gradient = torch.zeros_like(parameters)
        both, rows = networks.NUM_CRITICS, networks.block_rows(layers, dtype, self._device)
        self._critics = Mlp(layers, parameters, gradient, both, dtype, spares, block_rows=rows)
        evaluated = partial(Mlp, dtype=dtype, spares=spares, forward_only=True)
        self._targets = evaluated(layers, parameters.clone(), num_networks=both, block_rows=rows)
        self._adam = networks.adam(options, parameters, gradient, len(parameters))
        self._value = networks.critic_value(options, self._device)
        policy = networks.first_policy(options, spaces, seed).to(self._device)
        layers = networks.policy_layers(options, spaces)
        rows = networks.block_rows(layers, dtype, self._device)
        self._input = networks.JoinedInput(spaces, self._critics)
        self._next_input = networks.JoinedInput(spaces, self._targets)
        acting = self._next_input.observations
        self._policy = evaluated(layers, policy, by_output=True, block_rows=rows, input_of=acting)
        self._distribution = networks.distribution(options, spaces, self._device)
        self._numbers = Numbers(self._device)
        self._only = ViewOf(lambda output: output[0])
        self._minus_temperature = torch.tensor(-options.initial_temperature, device=self._device)
        self._generator = networks.generator(seed, networks.CRITIC_NOISE, self._device)
        self._staging = Staging(self._device)
        self._launch_backward = captured(self._backward, self._device, [self._generator])
        self._launch_step = captured(self._step, self._device)
        self.num_updates = 0
        self._learned: tuple[torch.Tensor, torch.Tensor]  # output and target of the last update

    @property
    def weights(self) -> torch.Tensor:
        """Both critics' parameters."""
        return self._critics.parameters

    @property
    def trained(self) -> torch.Tensor:
        """The same: all of them are trained."""
        return self._critics.parameters

    def load_policy(self, arrays: Mapping[str, NDArray[np.float32]], extras: Mapping[str, float]) -> None:
        """Take a published policy and its temperature. Raises WireError where they do not fit."""
        networks.load_flat(self._policy.parameters, arrays["parameters"], "a policy", self._staging)
        self._spaces.rows.adopt(arrays)
        self._policy.refresh()
        if "temperature" in extras:
            self._minus_temperature.fill_(-float(extras["temperature"]))

    @property
    def gradient(self) -> torch.Tensor:
        """Of both critics, flat."""
        assert self._critics.gradient is not None
        return self._critics.gradient

    @torch.inference_mode()
    def update(self, batch: Batch) -> LazyMetrics:
        """One step of both critics; metrics ``critic_loss``, ``q_mean`` and ``target_mean``."""
        metrics = self._launch_backward(*_fields(batch))
        self._launch_step()
        self.num_updates += 1
        return metrics

    @torch.inference_mode()
    def backward(self, batch: Batch) -> LazyMetrics:
        """The gradient of the loss: the sum over the critics of the mean over the batch, each row by its
        weight if it has one.
        """
        return self._launch_backward(*_fields(batch))

    def _backward(
        self,
        obs: torch.Tensor,
        action: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
        next_obs: torch.Tensor,
        weight: torch.Tensor | None,
    ) -> LazyMetrics:
        """What of it happens on the device, and nothing else."""
        size = reward.shape[0]
        target = self._target(next_obs, reward, discount)
        self._input.observations(size).copy_(self._spaces.rows(obs))
        inputs = self._input.joined(self._spaces.unit_action(action))
        share = self._numbers(1.0 / size) if weight is None else weight / size

        def loss_gradient(output: torch.Tensor, rows: slice, gradient: torch.Tensor) -> None:
            of_rows = share if weight is None else cut(share, rows)
            self._value.loss_gradient(output, cut(target, rows), of_rows, gradient)

        output = self._critics.fit(inputs, loss_gradient)
        self._learned = output, target
        return LazyMetrics(
            critic_loss=lambda: self._value.loss(self._value.error(output, target)).mean(),
            q_mean=lambda: self._value.expected(output).mean(),
            target_mean=lambda: self._value.expected_target(target).mean(),
        )

    @torch.inference_mode()
    def step(self) -> None:
        """Move the critics by the gradient, and their targets after them."""
        self._launch_step()
        self.num_updates += 1

    def _step(self) -> None:
        """What of it happens on the device, and nothing else."""
        self._adam.step()
        self._critics.refresh()
        self._targets.parameters.lerp_(self._critics.parameters, self._tau)
        self._targets.refresh()

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """Go on with another ``learning_rate`` and ``tau``."""
        self._adam.learning_rate, self._tau = rates["learning_rate"], rates["tau"]
        self._launch_step = captured(self._step, self._device)  # a graph keeps the numbers it was made with

    def reseed(self, seed: int) -> None:
        """Draw the noise of the target actions from another seed from here on."""
        self._generator.set_state(networks.generator(seed, networks.CRITIC_NOISE, self._device).get_state())

    @torch.inference_mode()
    def target(self, batch: Batch) -> torch.Tensor:
        """What to learn, ``[B]`` or ``[B, num_atoms]``: equation 3, over ``n`` steps."""
        return self._target(batch.next_obs, batch.reward, batch.discount)

    def _target(self, next_obs: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor) -> torch.Tensor:
        observations = self._next_input.observations(reward.shape[0])
        observations.copy_(self._spaces.rows(next_obs))
        draw = self._distribution.draw(self._only(self._policy.forward(observations)), self._generator)
        output = self._targets.forward(self._next_input.joined(draw.action))
        return self._value.target(output, draw.log_prob, self._minus_temperature, reward, discount)

    def priorities(self) -> torch.Tensor:
        """``[B]``: the size of the last update's errors, the mean of both critics'."""
        return self._value.error(*self._learned).abs().mean(0)

    def parameters(self) -> NDArray[np.float32]:
        """A fresh flat copy of both critics, without their targets."""
        return networks.export_flat(self._critics.parameters)

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that the next update depends on."""
        return {
            "critics": self._critics.parameters.clone(),
            "targets": self._targets.parameters.clone(),
            "policy": self._policy.parameters.clone(),
            "temperature": -self._minus_temperature,
            "observations": self._spaces.rows.state_dict(),
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
        self._minus_temperature.copy_(-state["temperature"])
        self._spaces.rows.load_state_dict(state["observations"])
        self._adam.load_state_dict(state["adam"])
        self._generator.set_state(state["generator"].cpu())
        self.num_updates = int(state["num_updates"])


def _fields(batch: Batch) -> tuple[torch.Tensor | None, ...]:
    return batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, batch.weight
