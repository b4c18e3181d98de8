"""Soft actor-critic for discrete actions (Christodoulou 2019, arXiv 1910.07207).

The critics give the value of every action at once, so that expectations over the policy are sums, without a
sample. Names are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``; equations are the
paper's.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spreeze_zmq import nn
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributions import Categorical
from spreeze_zmq.algorithms.encoders import EncoderOptions
from spreeze_zmq.algorithms.options import ReplayOptions
from spreeze_zmq.algorithms.shared_encoder import SharedEncoderAlgorithm, SharedEncoderOptions
from spreeze_zmq.algorithms.twin_critics import POLICY_OUTPUT_SCALE, TwinCriticOptions
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class DiscreteSAC(SharedEncoderAlgorithm):
    """A categorical policy that maximises return plus entropy, and twin critics of both."""

    @dataclass(frozen=True)
    class Options(SharedEncoderOptions):
        """Options of SAC for discrete actions."""

        batch_size: int | Literal["auto"] = with_default(ReplayOptions, "batch_size", 64)
        reference_batch_size: int = with_default(ReplayOptions, "reference_batch_size", 64)
        max_batch_size: int = with_default(ReplayOptions, "max_batch_size", 512)
        learning_rate: float = with_default(ReplayOptions, "learning_rate", 5e-4)
        tau: float = with_default(TwinCriticOptions, "tau", 0.01)
        hidden_sizes: tuple[int, ...] = with_default(EncoderOptions, "hidden_sizes", (128, 128))
        activation: str = with_default(EncoderOptions, "activation", "relu")
        layer_norm: bool = with_default(TwinCriticOptions, "layer_norm", False)
        initial_temperature: float = option(
            0.1, "weight of the entropy at the start", minimum=1e-8, initial=True
        )
        learn_temperature: bool = option(True, "fit the temperature to the target entropy", fixed=True)
        entropy_share: float = option(
            0.9,
            "share of the largest entropy, that of all legal actions alike, which samplers keep; 0.98 in "
            "1910.07207; with little of it a replay soon lacks what other actions lead to",
            minimum=0.0,
            maximum=1.0,
            only_with="learn_temperature",
            only_at=(True,),
            schedule=True,
        )

    acts_in = ("discrete",)
    takes_masks = True

    options: Options
    critics: Module
    target_critics: Module
    policy: Module
    log_temperature: Module

    def __init__(self, options: Options, env: EnvironmentSpec) -> None:
        super().__init__(options, env)
        self.actions = Categorical(env)

    def networks(self) -> Networks:
        """Twin critics ``[2, B, num_actions]`` and targets; the policy and the log of the temperature."""
        options = self.options
        sizes = (self.num_inputs, *options.hidden_sizes, self.env.num_actions)
        critics = nn.ensemble(2, lambda: nn.mlp(sizes, options.activation, options.layer_norm))
        policy = nn.mlp(sizes, options.activation, output_scale=POLICY_OUTPUT_SCALE)
        log_temperature = nn.Number(math.log(options.initial_temperature), options.learn_temperature)
        networks = Networks(
            critic={"critics": critics},
            policy={"policy": policy, "log_temperature": log_temperature},
            targets={"target_critics": copy.deepcopy(critics)},
        )
        return self.behind_encoder(networks)

    def critic_loss(self, batch: Any) -> Loss:
        """Soft policy evaluation: equation 4, with the soft value of equation 10 in the target."""
        o_tm1, a_tm1 = self.features(batch.obs), batch.action
        with torch.no_grad():
            o_t = self.features(batch.next_obs)
            mask_t = batch.next_action_mask if self.env.action_mask else None
            log_pi_t = self._log_policy(o_t, mask_t)
            q_t = torch.minimum(*self.target_critics(o_t).float())
            soft_q_t = q_t - self.log_temperature().exp() * log_pi_t
            target_tm1 = batch.reward + batch.discount * (log_pi_t.exp() * soft_q_t).sum(1)
        index = a_tm1.long().view(1, -1, 1).expand(2, -1, 1)
        error = self.critics(o_tm1).float().gather(2, index).squeeze(2) - target_tm1
        loss = 0.5 * error.square()
        weighted = loss if batch.weight is None else loss * batch.weight
        metrics = {"q_mean": lambda: (error + target_tm1).mean(), "target_mean": target_tm1.mean}
        return Loss(2.0 * weighted.mean(), metrics, priorities=error.detach().abs().mean(0))

    def policy_loss(self, batch: Any) -> Loss:
        """Policy improvement, equation 12, and the objective of the temperature, equation 11.

        In equation 11 the logarithm of the temperature takes the place of the temperature, so that the
        gradient does not vanish with it.
        """
        mask_t = batch.action_mask if self.env.action_mask else None
        o_t = self.features(batch.obs)
        log_pi_t = self._log_policy(o_t, mask_t)
        pi_t = log_pi_t.exp()
        with torch.no_grad():
            q_t = torch.minimum(*self.critics(o_t).float())
        log_temperature: Tensor = self.log_temperature()
        temperature = log_temperature.detach().exp()
        loss = (pi_t * (temperature * log_pi_t - q_t)).sum(1).mean()
        entropy = -(pi_t * log_pi_t).detach().sum(1).mean()
        metrics = {"actor_loss": loss.detach(), "entropy": entropy, "temperature": temperature}
        if self.options.learn_temperature:
            loss = loss + log_temperature * (entropy - self._target_entropy(mask_t))
        return Loss(loss, metrics)

    def _log_policy(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """The log probability of each action, ``[B, num_actions]``."""
        return self.actions.log_probs(self.head(self.policy)(features), mask)[0]

    def _target_entropy(self, mask: Tensor | None) -> Any:
        """The option's share of the largest entropy, on average over the legal actions of a batch."""
        if mask is None:
            return self.options.entropy_share * math.log(self.env.num_actions)
        return self.options.entropy_share * mask.sum(1).float().log().mean()

    def after_critic_step(self) -> None:
        """Move the target critics towards the critics."""
        nn.polyak(self.target_critics, self.critics, self.options.tau)

    def distribution(self) -> Categorical:
        """A categorical distribution."""
        return self.actions
