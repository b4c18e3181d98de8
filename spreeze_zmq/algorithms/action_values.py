"""What DQN and PQN share: the options of their network, the shift of images and the exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.distributions import EpsilonGreedy
from spreeze_zmq.algorithms.encoders import EncoderOptions, check_encoder
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.schema import option
from spreeze_zmq.envs.spec import EnvironmentSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


@dataclass(frozen=True)
class ActionValueOptions(EncoderOptions):
    """Options of a network of action values and of its exploration."""

    random_shift: int = option(0, "largest random shift of images, in pixels (DrQ, 2004.13649: 4)", minimum=0)
    initial_epsilon: float = option(
        1.0, "probability of a random action at the start", minimum=0.0, maximum=1.0
    )
    final_epsilon: float = option(0.05, "probability of a random action at the end", minimum=0.0, maximum=1.0)
    exploration_steps: int = option(10_000, "transitions sampled until final_epsilon is reached", minimum=1)
    epsilon_spread: float = option(
        0.0,
        "environments explore with powers of epsilon from 1, the first, to 1 + this, the last; "
        "7 in 1803.00933",
        minimum=0.0,
    )


class ActionValueAlgorithm(Algorithm):
    """Base of algorithms with one network ``q`` of action values, which is both critic and policy."""

    acts_in = ("discrete",)

    options: Any
    q: Module

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment if the actions do not fit, or an option needs other observations."""
        super().check(env, options)
        shape = env.obs_shape
        if options.random_shift and (env.obs_dtype != "uint8" or len(shape) != 3):
            raise InvalidEnvironment(
                f"random_shift = {options.random_shift} moves images, this environment's observations are "
                f"{env.obs_dtype} of shape {list(shape)}"
            )
        check_encoder(env, options)

    def shifted(self, obs: Tensor) -> Tensor:
        """The observations ``[B, size]``, images randomly shifted if the options ask for it."""
        pixels = self.options.random_shift
        return nn.random_shift(obs, self.env.obs_shape, pixels) if pixels else obs

    def exploring(self, num_atoms: int = 1, v_min: float = 0.0, v_max: float = 1.0) -> EpsilonGreedy:
        """Epsilon-greedy, with an epsilon that falls linearly with the transitions sampled."""
        options = self.options
        progress = min(1.0, self.env_steps / options.exploration_steps)
        epsilon = options.initial_epsilon + progress * (options.final_epsilon - options.initial_epsilon)
        return EpsilonGreedy(self.env, epsilon, options.epsilon_spread, num_atoms, v_min, v_max)
