"""Deep Q-network, DQN (Mnih et al. 2015, doi 10.1038/nature14236), and its extensions.

Options choose double Q-learning (arXiv 1509.06461), dueling networks (1511.06581), distributions of returns
(C51, 1707.06887), prioritised replay (1511.05952), exploration spread over environments (Ape-X, 1803.00933)
and a memory (R2D2, https://openreview.net/forum?id=r1lyTjAqYX). Names are by time, as in the transition
``(o_tm1, a_tm1, r_t, discount_t, o_t)``. PQN shares the base class and its options.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spreeze_zmq import nn
from spreeze_zmq.algorithms.algorithm import Algorithm
from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributional import DistributionalOptions
from spreeze_zmq.algorithms.distributions import EpsilonGreedy, expected_values, legal
from spreeze_zmq.algorithms.encoders import (
    EncoderOptions,
    check_encoder,
    check_shift,
    encoder,
    shifted,
)
from spreeze_zmq.algorithms.options import ReplayOptions
from spreeze_zmq.algorithms.sequences import SequenceOptions, steps_of
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from spreeze_zmq.nn import PeriodicCopy


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
        "environments explore with powers of epsilon evenly between 1 and 1 + this; 7 in 1803.00933",
        minimum=0.0,
    )


class ActionValueAlgorithm(Algorithm):
    """Base of algorithms with one network ``q`` of action values, which is both critic and policy."""

    acts_in = ("discrete",)
    takes_masks = True

    options: Any
    q: Module

    @classmethod
    def check(cls, env: EnvironmentSpec, options: Any) -> None:
        """Raise InvalidEnvironment if the actions do not fit, or an option needs other observations."""
        super().check(env, options)
        check_encoder(env, options)
        check_shift(env, options)

    def shifted(self, obs: Tensor) -> Tensor:
        """The observations ``[B, size]``, images randomly shifted if the options ask for it."""
        return shifted(self.env, obs, self.options.random_shift)

    def exploring(self, num_atoms: int = 1, v_min: float = 0.0, v_max: float = 1.0) -> EpsilonGreedy:
        """Epsilon-greedy, with an epsilon that falls linearly with the transitions sampled, and is the final
        one where none are.
        """
        options = self.options
        progress = 1.0 if self.offline else min(1.0, self.env_steps / options.exploration_steps)
        epsilon = options.initial_epsilon + progress * (options.final_epsilon - options.initial_epsilon)
        return EpsilonGreedy(self.env, epsilon, options.epsilon_spread, num_atoms, v_min, v_max)


class DQN(ActionValueAlgorithm):
    """A network of action values that is both critic and policy, trained by one learner."""

    @dataclass(frozen=True)
    class Options(ActionValueOptions, SequenceOptions, DistributionalOptions):
        """Options of DQN."""

        batch_size: int | Literal["auto"] = with_default(ReplayOptions, "batch_size", 64)
        reference_batch_size: int = with_default(ReplayOptions, "reference_batch_size", 64)
        max_batch_size: int = with_default(ReplayOptions, "max_batch_size", 512)
        learning_rate: float = with_default(ReplayOptions, "learning_rate", 5e-4)
        double: bool = option(True, "choose the next action by the trained network (1509.06461)")
        dueling: bool = option(
            False, "sum a state value and an advantage of each action (1511.06581)", fixed=True
        )
        tau: float = option(
            0.01,
            "how far the target network moves towards the trained one; 1 copies it",
            minimum=0.0,
            maximum=1.0,
            follows="average",
            schedule=True,
        )
        target_every: int = option(
            1, "updates from one such move to the next; state tau = 1 to copy", minimum=1
        )

    options: Options
    target_q: Module
    target_clock: PeriodicCopy

    def networks(self) -> Networks:
        """The network of action values and its target."""
        options, num_actions, memory_size = self.options, self.env.action_sizes[0], self.options.memory_size
        outputs = options.num_atoms * (num_actions + options.dueling)
        head = encoder(self.env, options, outputs, num_beside=memory_size)
        if options.dueling:
            head.append(nn.Dueling(num_actions, options.num_atoms))
        q = nn.Recurrent(math.prod(self.env.obs_shape), memory_size, head) if memory_size else head
        targets = {"target_q": copy.deepcopy(q), "target_clock": nn.PeriodicCopy()}
        return Networks(critic={"q": q}, targets=targets, acting="q")

    def critic_loss(self, batch: Any) -> Loss:
        """One-step or n-step Q-learning of values, algorithm 1, or of distributions (C51, algorithm 1)."""
        steps = steps_of(batch, self.options, self.shifted)
        batch = steps.batch
        output_tm1 = self._of_action(steps.outputs(self.q), batch.action)
        with torch.no_grad():
            target_output_t = steps.following(self.target_q)
            selector_t = steps.following(self.q) if self.options.double else target_output_t
            mask_t = batch.next_action_mask if self.env.action_mask else None
            a_t = legal(self._values(selector_t), mask_t).argmax(1)
            output_t = self._of_action(target_output_t, a_t)
            target_tm1 = self._target(output_t, batch.reward, batch.discount)
        if self.options.num_atoms == 1:
            error = (output_tm1 - target_tm1).squeeze(1)
            # Its gradient is the error clipped to [-1, 1], as the paper's methods have it.
            loss = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
        else:
            error = loss = nn.divergence(output_tm1, target_tm1)
        weighted = loss if batch.weight is None else loss * batch.weight
        metrics = {"q_mean": lambda: self._values(output_tm1).mean()}
        if self.options.num_atoms > 1:
            metrics |= nn.end_masses(target_tm1)
        return Loss(weighted.mean(), metrics, priorities=steps.priorities(error.detach().abs()))

    def _values(self, output: Tensor) -> Tensor:
        """The expected return of each action, ``[B, num_actions]``."""
        options = self.options
        return expected_values(output, options.num_atoms, *options.support)

    def _of_action(self, output: Tensor, action: Tensor) -> Tensor:
        """The outputs ``[B, num_atoms]`` for one action of each row."""
        rows = output.float().reshape(len(output), -1, self.options.num_atoms)
        index = action.long().view(-1, 1, 1).expand(-1, 1, self.options.num_atoms)
        return rows.gather(1, index).squeeze(1)

    def _target(self, output_t: Tensor, r_t: Tensor, discount_t: Tensor) -> Tensor:
        """``r_t + discount_t * return``: its expectation ``[B, 1]``, or probabilities ``[B, num_atoms]``."""
        if self.options.num_atoms == 1:
            return r_t.unsqueeze(1) + discount_t.unsqueeze(1) * output_t
        return nn.project(output_t.softmax(1), r_t, discount_t, *self.options.support)

    def after_critic_step(self) -> None:
        """Move the target towards the network, at each update or every ``target_every`` updates."""
        if self.options.target_every == 1:
            nn.polyak(self.target_q, self.q, self.options.tau)
        else:
            self.target_clock.update(self.target_q, self.q, self.options.tau, self.options.target_every)

    def distribution(self) -> EpsilonGreedy:
        """Epsilon-greedy on the expected returns, in the environment's units if they are distributions."""
        v_min, v_max = (self.reward_divisor * end for end in self.options.support)
        return self.exploring(self.options.num_atoms, v_min, v_max)
