"""Soft actor-critic, SAC, with automatic temperature (Haarnoja et al. 2018, arXiv 1812.05905).

Names are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``; equations are the paper's.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spreeze_zmq import nn
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributions import TanhNormal
from spreeze_zmq.algorithms.options import check_below
from spreeze_zmq.algorithms.sequences import steps_of
from spreeze_zmq.algorithms.shared_encoder import SharedEncoderAlgorithm
from spreeze_zmq.algorithms.twin_critics import (
    TwinCriticOptions,
    TwinCritics,
    critic_networks,
    policy_network,
)
from spreeze_zmq.base.schema import option
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class SAC(SharedEncoderAlgorithm):
    """A stochastic policy that maximises return plus entropy, and critics of both."""

    @dataclass(frozen=True)
    class Options(TwinCriticOptions):
        """Options of SAC."""

        initial_temperature: float | Literal["auto"] = option(
            "auto",
            "weight of the entropy at the start; auto is 0.1, or 0.002 where rewards are divided",
            minimum=1e-8,
            words=("auto",),
            initial=True,
        )
        learn_temperature: bool = option(True, "fit the temperature to the target entropy", fixed=True)
        target_entropy: float | Literal["auto"] = option(
            "auto",
            "entropy in nats of the actions scaled to [-1, 1]; auto is minus their number",
            words=("auto",),
            only_with="learn_temperature",
            only_at=(True,),
            schedule=True,
        )
        log_std_min: float = option(
            -5.0, "lowest log standard deviation before the tanh", minimum=-20.0, maximum=2.0
        )
        log_std_max: float = option(
            2.0, "highest log standard deviation before the tanh", minimum=-20.0, maximum=2.0
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            check_below(self, "log_std_min", "log_std_max")

        @property
        def first_temperature(self) -> float:
            """The weight of the entropy at the start."""
            if not isinstance(self.initial_temperature, str):
                return self.initial_temperature
            return 0.1 if self.largest_return is None else 0.002

    acts_in = ("box",)
    needs_bounds = True
    auto_bf16 = True

    options: Options
    critics: Module
    target_critics: Module
    policy: Module
    log_temperature: Module

    def __init__(self, options: Options, env: EnvironmentSpec) -> None:
        super().__init__(options, env)
        self.twins = TwinCritics(options)
        self.actions = TanhNormal(env, options.log_std_min, options.log_std_max)

    @property
    def target_entropy(self) -> Any:
        """As the option is now; of ``"auto"`` the number of actions, negative."""
        target = self.options.target_entropy
        return float(-self.actions.num_actions) if isinstance(target, str) else target

    def networks(self) -> Networks:
        """Twin critics and their targets; the policy and the logarithm of the temperature."""
        options, num_obs = self.options, self.num_inputs
        critics = critic_networks(options, num_obs + self.actions.num_actions)
        policy = policy_network(options, num_obs, self.actions.num_outputs)
        log_temperature = nn.Number(math.log(options.first_temperature), options.learn_temperature)
        networks = Networks(
            critic={"critics": critics},
            policy={"policy": policy, "log_temperature": log_temperature},
            targets={"target_critics": copy.deepcopy(critics)},
        )
        return self.behind_encoder(networks)

    def critic_loss(self, batch: Any) -> Loss:
        """Soft policy evaluation: equation 5, with the soft value of equation 3 in the target. With
        ``n_step`` above 1 the entropy is that of the step which is bootstrapped from alone, as is common;
        equation 3 has those of the steps between, too.
        """
        steps = steps_of(batch, self.options, self.features, self.actions.unit)
        a_tm1, r_t, discount_t = steps.batch.action, steps.batch.reward, steps.batch.discount
        with torch.no_grad():
            a_t, log_prob_t = self.actions.sample(steps.following(self.head(self.policy)))
            temperature = self.log_temperature().exp()
            output_t = steps.following(self.target_critics, a_t)
            soft_r_t = r_t - discount_t * temperature * log_prob_t
            target_tm1 = self.twins.target(output_t, soft_r_t, discount_t)
        output_tm1 = steps.outputs(self.critics, self.actions.unit(a_tm1))
        return self.twins.loss(output_tm1, target_tm1, steps)

    def policy_loss(self, batch: Any) -> Loss:
        """Policy improvement, equation 9, and the objective of the temperature, equation 18.

        In equation 18 the logarithm of the temperature takes the place of the factor alpha, so that the
        gradient does not vanish with the temperature.
        """
        steps = steps_of(batch, self.options, self.features, self.actions.unit)
        a_t, log_prob_t = self.actions.sample(steps.outputs(self.head(self.policy)))
        log_temperature: Tensor = self.log_temperature()
        temperature = log_temperature.detach().exp()
        q_t = self.twins.value(steps.outputs(self.critics, a_t))
        loss = (temperature * log_prob_t - q_t).mean()
        entropy = -log_prob_t.detach().mean()
        metrics = {"actor_loss": loss.detach(), "entropy": entropy, "temperature": temperature}
        if self.options.learn_temperature:
            loss = loss + log_temperature * (entropy - self.target_entropy)
        return Loss(loss, metrics)

    def after_critic_step(self) -> None:
        """Move the target critics towards the critics."""
        nn.polyak(self.target_critics, self.critics, self.options.tau)

    def distribution(self) -> TanhNormal:
        """A normal distribution, squashed to the bounds by tanh."""
        return self.actions
