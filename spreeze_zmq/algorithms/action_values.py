"""What algorithms that learn the value of each action share: their networks and how they explore."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.algorithms.lazy import nn
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.errors import InvalidEnvironment
from spreeze_zmq.schema import option

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Sequential

#: The smallest image, in height and width, that the Nature network can take.
LEAST_PIXELS = 36


@dataclass(frozen=True)
class ActionValueOptions:
    """Of the network, and of exploration by any action now and then."""

    network: str = option(
        "auto",
        "nature_cnn takes images [channels, height, width]; auto is that for them, else mlp",
        choices=("auto", "mlp", "nature_cnn"),
        fixed=True,
    )
    random_shift: int = option(
        0, "pixels that images are moved by at most, at random (DrQ, 2004.13649: 4)", minimum=0
    )
    hidden_sizes: tuple[int, ...] = option(
        (128, 128), "width of each hidden layer of an mlp", minimum=1, fixed=True
    )
    activation: str = option("relu", "between those", choices=("relu", "elu", "silu", "tanh"), fixed=True)
    layer_norm: bool = option(False, "normalise each hidden layer", fixed=True)
    initial_epsilon: float = option(
        1.0, "share of actions that are any, at the start", minimum=0.0, maximum=1.0
    )
    final_epsilon: float = option(0.05, "that share at the end", minimum=0.0, maximum=1.0)
    exploration_steps: int = option(10_000, "transitions sampled from start to end", minimum=1)
    epsilon_spread: float = option(
        0.0,
        "the last environment explores with epsilon to the power of 1 + this, those between are between; "
        "7 in 1803.00933",
        minimum=0.0,
    )


class ActionValueAlgorithm(Algorithm):
    """The value of each action, of which the best is taken. One learner: its critic is its policy."""

    acts_in = ("discrete",)

    options: Any
    q: Module

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment also where the network or the shift takes images and observations are
        none.
        """
        super().check(env, options)
        shape = env.obs_shape
        if options.random_shift and (env.obs_dtype != "uint8" or len(shape) != 3):
            raise InvalidEnvironment(
                f"random_shift = {options.random_shift} moves images, this environment's observations are "
                f"{env.obs_dtype} of shape {list(shape)}"
            )
        if options.network == "nature_cnn" and not _fits_cnn(shape):
            raise InvalidEnvironment(
                f'network = "nature_cnn" takes images [channels, height, width] of at least {LEAST_PIXELS} '
                f"pixels each way, this environment's observations are {list(shape)}; resize or transpose "
                'them, or use network = "mlp"'
            )

    def action_values(self, num_outputs: int) -> Sequential:
        """A network from observations ``[B, size]`` to ``[B, num_outputs]``, convolutional on images."""
        options, shape = self.options, self.env.obs_shape
        images = self.env.obs_dtype == "uint8" and _fits_cnn(shape)
        if options.network == "nature_cnn" or (options.network == "auto" and images):
            return nn.nature_cnn((shape[0], shape[1], shape[2]), num_outputs, options.layer_norm)
        sizes = (math.prod(shape), *options.hidden_sizes, num_outputs)
        return nn.mlp(sizes, options.activation, options.layer_norm)

    def shifted(self, obs: Tensor) -> Tensor:
        """Images a little moved, each in another direction, where the options ask for it."""
        pixels = self.options.random_shift
        return nn.random_shift(obs, self.env.obs_shape, pixels) if pixels else obs

    def exploring(self, num_atoms: int = 1, v_min: float = 0.0, v_max: float = 1.0) -> EpsilonGreedy:
        """The best action, or any with a probability that falls linearly in the transitions sampled."""
        options = self.options
        progress = min(1.0, self.env_steps / options.exploration_steps)
        epsilon = options.initial_epsilon + progress * (options.final_epsilon - options.initial_epsilon)
        return EpsilonGreedy(self.env, epsilon, options.epsilon_spread, num_atoms, v_min, v_max)


def _fits_cnn(shape: tuple[int, ...]) -> bool:
    """Whether observations, as networks see them, are images that the Nature network can take."""
    return len(shape) == 3 and min(shape[1:]) >= LEAST_PIXELS
