"""Proximal policy optimisation, PPO (Schulman et al. 2017, arXiv 1707.06347), with V-trace.

V-trace (Espeholt et al. 2018, arXiv 1802.01561) corrects rollouts of older policies; on those of the current
policy this is the paper's PPO. Names are by time, as in ``(o_tm1, a_tm1, r_t, discount_t, o_t)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributions import Categorical, Normal
from spreeze_zmq.algorithms.encoders import EncoderOptions, check_encoder, encoder
from spreeze_zmq.algorithms.moving import of_network
from spreeze_zmq.algorithms.nearness import check_rate, divergence, held_square, rate_factor
from spreeze_zmq.algorithms.options import RolloutOptions
from spreeze_zmq.algorithms.returns import explained_variance, rollout_returns
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

#: Scale of a fresh policy's last layer: its first actions are close to uniform, or to the middle.
POLICY_OUTPUT_SCALE = 0.01
#: Limits of the log standard deviations of a policy in a box.
LOG_STD_LIMITS = (-10.0, 2.0)


class PPO(Algorithm):
    """A stochastic policy whose steps are limited by a clipped ratio, and a separate value network."""

    @dataclass(frozen=True)
    class Options(EncoderOptions, RolloutOptions):
        """Options of PPO."""

        max_gradient_norm: float = with_default(RolloutOptions, "max_gradient_norm", 0.5)
        hidden_sizes: tuple[int, ...] = with_default(EncoderOptions, "hidden_sizes", (64, 64))
        activation: str = with_default(EncoderOptions, "activation", "tanh")
        initial_log_std: float = option(
            -0.5,
            "of a fresh policy, in actions of [-1, 1] if there are bounds",
            minimum=LOG_STD_LIMITS[0],
            maximum=LOG_STD_LIMITS[1],
            initial=True,
        )
        clip_range: float = option(0.2, "equation 7 clips the ratio to 1 +- this", minimum=0.0, schedule=True)
        value_clip_range: float | None = option(
            None, "a value may move by this in a round before it costs more; never without it", above=0.0
        )
        desired_kl: float | None = option(
            None,
            "the policy's learning rate follows the KL divergence of its updates, as in rsl_rl (0.01 there)",
            above=0.0,
        )
        entropy_coefficient: float = option(0.0, "weight of the entropy bonus", minimum=0.0, schedule=True)
        gae_lambda: float = option(
            0.95, "weight of longer returns in the advantages (1506.02438)", minimum=0.0, maximum=1.0
        )
        normalize_advantages: bool = option(True, "to mean 0 and deviation 1 in each batch")
        correct_staleness: bool = option(
            True, "weigh steps of older policies by V-trace (1802.01561); false trusts them as they are"
        )
        memory_size: int = option(
            0,
            "size of the policy's memory, a gated recurrent unit (1406.1078), where one observation is not "
            "enough; a batch then has all steps of whole environments",
            minimum=0,
            fixed=True,
        )
        rho_bar: float = option(1.0, "V-trace: upper bound of the weights of rewards", minimum=0.0)
        c_bar: float = option(1.0, "V-trace: upper bound of the weights of traces", minimum=0.0)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.desired_kl is not None:
                check_rate(of_network(self, "learning_rate", "policy", "policy"))

    acts_in = ("box", "discrete", "multi_discrete")
    box_options, box_round = dict.fromkeys(("normalize_observations", "normalize_rewards"), True), 2048
    takes_masks = True

    options: Options
    value: Module
    policy: Module

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment if the actions do not fit, or an option needs other observations."""
        super().check(env, options)
        check_encoder(env, options)

    @classmethod
    def memory_size(cls, options: Any) -> int:
        return int(options.memory_size)

    def __init__(self, options: Options, env: EnvironmentSpec) -> None:
        super().__init__(options, env)
        box = env.action_kind == "box"
        self.actions: Normal | Categorical = Normal(env, *LOG_STD_LIMITS) if box else Categorical(env)

    def networks(self) -> Networks:
        """The value network, and the policy, whose log standard deviations do not depend on the state. With a
        memory both take ``[observation, memory]``, whose part the policy's loss alone trains, in its learner.
        """
        actions, memory_size = self.actions, self.options.memory_size
        value = encoder(self.env, self.options, 1, num_beside=memory_size)
        size = actions.num_outputs if isinstance(actions, Categorical) else actions.num_actions
        head = encoder(self.env, self.options, size, POLICY_OUTPUT_SCALE, memory_size)
        if isinstance(actions, Normal):
            head.append(nn.Append(size, self.options.initial_log_std))
        num_obs = math.prod(self.env.obs_shape)
        policy = nn.Recurrent(num_obs, memory_size, head) if memory_size else head
        return Networks(critic={"value": value}, policy={"policy": policy})

    def targets_of(self, rollouts: Any) -> dict[str, Tensor]:
        """V-trace targets and advantages ``[T, N]`` of the current policy and value network."""
        options, remembered = self.options, {}
        if options.memory_size:
            rows = rollouts.obs.flatten(0, 1)
            output, after = nn.unroll(self.policy, rows, rollouts.memory, rollouts.begins)
            before = nn.remembered(rollouts.memory, after, rollouts.begins)
            ended_at = rollouts.final_index.unbind(1)
            obs = torch.cat([rollouts.obs, before], 2)
            final_obs = torch.cat([rollouts.final_obs, after[ended_at]], 1)
            rollouts = replace(rollouts, obs=obs, final_obs=final_obs)
            remembered = {"remembered": before[:-1]}
        else:
            output = self.policy(rollouts.obs[:-1].flatten(0, 1))
        a_tm1 = rollouts.action.flatten(0, 1)
        legal = {"mask": rollouts.action_mask[:-1].flatten(0, 1)} if self.env.action_mask else {}
        log_prob_tm1 = self.actions.log_prob(output[: len(a_tm1)], a_tm1, **legal)
        rho_tm1 = (log_prob_tm1.view_as(rollouts.log_prob) - rollouts.log_prob).exp()
        vtrace_rho_tm1 = rho_tm1 if options.correct_staleness else torch.ones_like(rho_tm1)
        weights = {"gae_lambda": options.gae_lambda, "rho_bar": options.rho_bar, "c_bar": options.c_bar}
        targets, advantages = rollout_returns(rollouts, self._value, options.gamma, vtrace_rho_tm1, **weights)
        found = {"target": targets, "advantage": advantages, "rho": rho_tm1, **remembered}
        if options.value_clip_range is not None:
            found["value"] = self._value(rollouts.obs[:-1].flatten(0, 1)).view_as(targets)
        return found

    def critic_loss(self, batch: Any) -> Loss:
        """Half the squared error of the value, equation 9; with ``value_clip_range``, :func:`held_square`."""
        rows = torch.cat([batch.obs, batch.remembered], 1) if self.options.memory_size else batch.obs
        target = batch.target
        value, clip = self._value(rows), self.options.value_clip_range
        error = value - target
        squared = error.square() if clip is None else held_square(value, batch.value, target, clip)
        metrics = {
            "target_mean": target.mean,
            "explained_variance": lambda: explained_variance(error, target),
        }
        return Loss(0.5 * squared.mean(), metrics)

    def policy_loss(self, batch: Any) -> Loss:
        """The clipped surrogate, equation 7, and the entropy bonus of equation 9.

        The ratio is to the policy that acted, of whatever version: it corrects for the choice of this action,
        V-trace for the choices after it. ``desired_kl`` is of the policy with which the round began.
        """
        options, advantage = self.options, batch.advantage
        if options.normalize_advantages and len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        if options.memory_size:
            output, _ = nn.unroll(self.policy, batch.obs, batch.memory, batch.begins)
        else:
            output = self.policy(batch.obs)
        legal = {"mask": batch.action_mask} if self.env.action_mask else {}
        log_ratio = self.actions.log_prob(output, batch.action, **legal) - batch.log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1.0 - options.clip_range, 1.0 + options.clip_range)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        metrics = {
            "entropy": lambda: self.actions.entropy(output, **legal).mean(),
            "kl": lambda: divergence(ratio, log_ratio),
            "clipped": lambda: ((ratio - 1.0).abs() > options.clip_range).float().mean(),
            "rho": batch.rho.mean,
        }
        coefficient: Any = options.entropy_coefficient
        if torch.is_tensor(coefficient) or coefficient:
            surrogate = surrogate + coefficient * self.actions.entropy(output, **legal).mean()
        if options.desired_kl is None:
            return Loss(-surrogate, metrics)
        moved = log_ratio.detach() - batch.rho.clamp(min=1e-30).log()
        factor = rate_factor(divergence(moved.exp(), moved), options.desired_kl)
        return Loss(-surrogate, metrics, rate_factor=factor)

    def _value(self, obs: Tensor) -> Tensor:
        """The value of observations ``[B, size]``, ``[B]``."""
        return torch.squeeze(self.value(obs).float(), 1)

    def distribution(self) -> Normal | Categorical:
        """Normal in a box, categorical elsewhere."""
        return self.actions
