"""Twin delayed deep deterministic policy gradient, TD3 (Fujimoto et al. 2018, arXiv 1802.09477).

Names are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``; equations are the paper's.
Each environment explores with noise of its own size, as in FastTD3 (Seo et al. 2025, arXiv 2505.22642).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributions import Deterministic
from spreeze_zmq.algorithms.sequences import steps_of
from spreeze_zmq.algorithms.shared_encoder import SharedEncoderAlgorithm
from spreeze_zmq.algorithms.twin_critics import (
    TwinCriticOptions,
    TwinCritics,
    critic_networks,
    policy_network,
)
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch.nn import Module


class TD3(SharedEncoderAlgorithm):
    """A deterministic policy, and twin critics whose minimum counters the overestimation of values."""

    @dataclass(frozen=True)
    class Options(TwinCriticOptions):
        """Options of TD3."""

        tau: float = with_default(TwinCriticOptions, "tau", 0.005)
        policy_delay: int = with_default(TwinCriticOptions, "policy_delay", 2)
        target_noise: float = option(
            0.2,
            "deviation of the noise that smooths the target policy, in actions of [-1, 1]",
            minimum=0.0,
            schedule=True,
        )
        target_noise_clip: float = option(0.5, "that noise is no larger than this", minimum=0.0)
        noise_min: float = option(
            0.1, "least deviation of the exploration, in actions of [-1, 1]", minimum=0.0
        )
        noise_max: float = option(
            0.4, "largest one; the environments are evenly between, a single one in the middle", minimum=0.0
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.noise_min > self.noise_max:
                raise InputError(
                    f"noise_min = {self.noise_min:g} must not be above noise_max = {self.noise_max:g}"
                )

    acts_in = ("box",)
    needs_bounds = True

    options: Options
    critics: Module
    target_critics: Module
    policy: Module
    target_policy: Module

    def __init__(self, options: Options, env: EnvironmentSpec) -> None:
        super().__init__(options, env)
        self.twins = TwinCritics(options)
        self.actions = Deterministic(env, options.noise_min, options.noise_max)

    def networks(self) -> Networks:
        """Twin critics, the policy, and targets of both."""
        num_obs = self.num_inputs
        critics = critic_networks(self.options, num_obs + self.actions.num_actions)
        policy = policy_network(self.options, num_obs, self.actions.num_outputs)
        networks = Networks(
            critic={"critics": critics},
            policy={"policy": policy},
            targets={"target_critics": copy.deepcopy(critics), "target_policy": copy.deepcopy(policy)},
        )
        return self.behind_encoder(networks)

    def critic_loss(self, batch: Any) -> Loss:
        """Clipped double Q-learning with target policy smoothing: equations 10, 14 and 15."""
        steps = steps_of(batch, self.options, self.features, self.actions.unit)
        a_tm1, r_t, discount_t = steps.batch.action, steps.batch.reward, steps.batch.discount
        clip = self.options.target_noise_clip
        with torch.no_grad():
            mode_t = self.actions.mode(steps.following(self.head(self.target_policy)))
            noise_t = (self.options.target_noise * torch.randn_like(mode_t)).clamp(-clip, clip)
            a_t = (mode_t + noise_t).clamp(-1.0, 1.0)
            output_t = steps.following(self.target_critics, a_t)
            target_tm1 = self.twins.target(output_t, r_t, discount_t)
        output_tm1 = steps.outputs(self.critics, self.actions.unit(a_tm1))
        return self.twins.loss(output_tm1, target_tm1, steps)

    def policy_loss(self, batch: Any) -> Loss:
        """The deterministic policy gradient through the first critic: algorithm 1."""
        steps = steps_of(batch, self.options, self.features, self.actions.unit)
        a_t = self.actions.mode(steps.outputs(self.head(self.policy)))
        q_t = self.twins.expected(steps.outputs(self.critics, a_t))[0]
        return Loss(-q_t.mean(), {"action_size": lambda: a_t.abs().mean()})

    def after_critic_step(self) -> None:
        """Move both targets, that of the policy towards the newest published policy.

        They move at every update of the critics; in algorithm 1 only when the policy does. Dividing ``tau``
        by ``policy_delay``, for the same speed as there, learned more slowly on HalfCheetah-v5.
        """
        nn.polyak(self.target_critics, self.critics, self.options.tau)
        nn.polyak(self.target_policy, self.policy, self.options.tau)

    def distribution(self) -> Deterministic:
        """The policy's action, with noise of another size in each environment."""
        return self.actions
