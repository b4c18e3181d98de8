"""What both halves of SAC must agree on: networks, their first weights, scaling of in- and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.fast.mlp import Mlp
from spreeze_zmq.algorithms.fast.packing import LayerDescription, describe, initialize
from spreeze_zmq.algorithms.fast.scratch import ViewOf
from spreeze_zmq.algorithms.fast.tanh_normal import TanhNormal
from spreeze_zmq.algorithms.fast.values import CategoricalValue, ScalarValue, Value
from spreeze_zmq.algorithms.flat import FlatAdam
from spreeze_zmq.algorithms.interface import Environment
from spreeze_zmq.algorithms.observations import ObservationRows
from spreeze_zmq.algorithms.sac import SACOptions
from spreeze_zmq.device import Staging
from spreeze_zmq.errors import WireError

NUM_CRITICS = 2
#: The last layer of a fresh policy is this small, so that its first actions lie about zero and none
#: saturates.
POLICY_OUTPUT_SCALE = 0.01
#: Size of a layer's outputs for the rows that a CPU works on at once: a few of them fit a core's own cache.
BLOCK_BYTES = {torch.float32: 1 << 19, torch.bfloat16: 1 << 20}
#: Streams of random numbers that one seed is spread over.
POLICY_WEIGHTS, CRITIC_WEIGHTS, CRITIC_NOISE, ACTOR_NOISE = range(4)


def generator(seed: int, stream: int, device: torch.device) -> torch.Generator:
    """An independent generator for one purpose, the same for everybody who asks with this seed."""
    state = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0]))


class Spaces:
    """Sizes and scaling of one environment's observations and actions on one device."""

    def __init__(self, options: SACOptions, env: Environment, device: torch.device):
        assert env.action_low is not None, "checked by Algorithm.check"
        assert env.action_high is not None
        self.rows = ObservationRows(env, options.normalize_observations, device)
        self.num_inputs = self.rows.size
        self.num_actions = math.prod(env.action_shape)
        self.low = np.array(env.action_low, np.float32).reshape(env.action_shape)
        self.high = np.array(env.action_high, np.float32).reshape(env.action_shape)
        centre, half = ((self.high + self.low) / 2.0).reshape(-1), ((self.high - self.low) / 2.0).reshape(-1)
        self._centre = torch.from_numpy(centre).to(device)
        self._half = torch.from_numpy(half).to(device)
        self._scaled = bool((centre != 0.0).any() or (half != 1.0).any())

    def unit_action(self, action: torch.Tensor) -> torch.Tensor:
        """Actions ``[B, *action_shape]`` in the environment's units as rows ``[B, A]`` in [-1, 1]."""
        rows = action if action.dim() == 2 else action.reshape(action.shape[0], self.num_actions)
        return (rows - self._centre).div_(self._half) if self._scaled else rows


def block_rows(layers: Sequence[LayerDescription], dtype: torch.dtype, device: torch.device) -> int:
    """How many rows an update works on at a time; 0 for all at once, as a GPU does."""
    if device.type != "cpu":
        return 0
    width: int = max(layer["out"] for layer in layers if layer["kind"] == "linear")
    return max(256, BLOCK_BYTES[dtype] // (width * dtype.itemsize))


def cut(field: torch.Tensor, rows: slice) -> torch.Tensor:
    """These rows of it; itself, where they are all."""
    return field if rows.stop - rows.start == field.shape[0] else field[rows]


class JoinedInput:
    """The critics' input, observation and action side by side; the policy reads the observations there."""

    def __init__(self, spaces: Spaces, critics: Mlp):
        self._input = critics.input
        self._parts = ViewOf(lambda rows: torch.split(rows, [spaces.num_inputs, spaces.num_actions], 1))

    def observations(self, num_rows: int) -> torch.Tensor:
        """``[B, inputs]``, to be written."""
        return self._parts(self._input(num_rows))[0]

    def joined(self, action: torch.Tensor) -> torch.Tensor:
        """``[B, inputs + A]``, with these actions beside the observations."""
        rows = self._input(action.shape[0])
        self._parts(rows)[1].copy_(action)
        return rows


def policy_layers(options: SACOptions, spaces: Spaces) -> list[LayerDescription]:
    """The policy's network: mean and raw log standard deviation of each action."""
    sizes = options.actor_hidden_sizes or options.hidden_sizes
    outputs = 2 * spaces.num_actions
    return describe(spaces.num_inputs, sizes, outputs, options.activation, options.actor_layer_norm)


def critic_layers(options: SACOptions, spaces: Spaces) -> list[LayerDescription]:
    """One critic's network: the value, or the logits of its atoms, of an observation and an action."""
    inputs = spaces.num_inputs + spaces.num_actions
    sizes = options.critic_hidden_sizes or options.hidden_sizes
    return describe(inputs, sizes, options.num_atoms, options.activation, options.layer_norm)


def critic_value(options: SACOptions, device: torch.device) -> Value:
    """What the critics' outputs stand for."""
    if options.num_atoms == 1:
        return ScalarValue(options.twin_critics, device)
    return CategoricalValue(options.twin_critics, options.num_atoms, options.v_min, options.v_max, device)


def adam(options: SACOptions, flat: torch.Tensor, gradient: torch.Tensor, num_weights: int) -> FlatAdam:
    """The optimiser of either half; what comes after ``num_weights`` does not decay."""
    return FlatAdam(
        flat,
        gradient,
        options.learning_rate,
        beta2=options.adam_beta2,
        weight_decay=options.weight_decay,
        num_decaying=num_weights,
        max_gradient_norm=options.max_gradient_norm,
    )


def first_policy(options: SACOptions, spaces: Spaces, seed: int) -> torch.Tensor:
    """The policy that both halves start from, flat, on the CPU."""
    source = generator(seed, POLICY_WEIGHTS, torch.device("cpu"))
    return initialize(policy_layers(options, spaces), 1, source, POLICY_OUTPUT_SCALE)


def first_critics(options: SACOptions, spaces: Spaces, seed: int) -> torch.Tensor:
    """The twin critics that both halves start from, flat, on the CPU."""
    source = generator(seed, CRITIC_WEIGHTS, torch.device("cpu"))
    return initialize(critic_layers(options, spaces), NUM_CRITICS, source)


def distribution(options: SACOptions, spaces: Spaces, device: torch.device) -> TanhNormal:
    """What the policy's output means."""
    return TanhNormal(spaces.num_actions, options.log_std_min, options.log_std_max, device)


def load_flat(target: torch.Tensor, parameters: NDArray[np.float32], what: str, staging: Staging) -> None:
    """Copy published parameters into ``target`` ``[P]``, after the updates that have been launched.

    Raises:
        WireError: ``bad_parameters``, where they are not ``P`` float32 numbers.
    """
    if parameters.dtype != np.float32 or parameters.shape != tuple(target.shape):
        raise WireError(
            "bad_parameters",
            f"{what} of {parameters.dtype} {parameters.shape}, expected float32 {tuple(target.shape)}: "
            "both learners must run the same algorithm options",
        )
    staging.load(target, parameters)


def export_flat(parameters: torch.Tensor) -> NDArray[np.float32]:
    """A fresh copy on the host, float32 ``[P]``."""
    return np.array(parameters.cpu().numpy())
