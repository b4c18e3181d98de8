"""Parallelised Q-network, PQN (Gallici et al. 2024, arXiv 2407.04811), without replay or target network.

Layer norm keeps the values from diverging; targets are the Q(lambda) returns of a round of rollouts. Names
are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spreeze_zmq.algorithms.declarations import Loss, Networks
from spreeze_zmq.algorithms.distributions import EpsilonGreedy, legal
from spreeze_zmq.algorithms.dqn import ActionValueAlgorithm, ActionValueOptions
from spreeze_zmq.algorithms.encoders import encoder
from spreeze_zmq.algorithms.options import RolloutOptions
from spreeze_zmq.algorithms.returns import rollout_returns
from spreeze_zmq.base.schema import option, with_default
from spreeze_zmq.nn import torch

if TYPE_CHECKING:
    from torch import Tensor


class PQN(ActionValueAlgorithm):
    """A network of action values, trained on rounds of rollouts of many environments."""

    @dataclass(frozen=True)
    class Options(ActionValueOptions, RolloutOptions):
        """Options of PQN."""

        learning_rate: float = with_default(RolloutOptions, "learning_rate", 5e-4)
        max_gradient_norm: float = with_default(RolloutOptions, "max_gradient_norm", 10.0)
        epochs: int = with_default(RolloutOptions, "epochs", 2)
        layer_norm: bool = with_default(ActionValueOptions, "layer_norm", True)
        q_lambda: float = option(
            0.65, "weight of longer returns; 0 is one-step Q-learning", minimum=0.0, maximum=1.0
        )

    options: Options

    def networks(self) -> Networks:
        """The network of action values."""
        return Networks(critic={"q": encoder(self.env, self.options, self.env.action_sizes[0])}, acting="q")

    def targets_of(self, rollouts: Any) -> dict[str, Tensor]:
        """Q(lambda) returns ``[T, N]`` of the current network, section 4. They bootstrap from the value of
        the best action, even where another one was taken.
        """
        options = self.options
        value: Callable[[Tensor], Tensor] = self._value
        if self.env.action_mask:  # behind each observation, so that both are valued together
            pairs = ("obs", rollouts.action_mask), ("final_obs", rollouts.final_action_mask)
            rows = {name: torch.cat([getattr(rollouts, name), masks], -1) for name, masks in pairs}
            rollouts, value = replace(rollouts, **rows), self._legal_value
        targets, _ = rollout_returns(rollouts, value, options.gamma, gae_lambda=options.q_lambda)
        return {"target": targets}

    def critic_loss(self, batch: Any) -> Loss:
        """Half the squared error of the taken action's value."""
        output_tm1 = self.q(self.shifted(batch.obs)).float()
        q_tm1 = output_tm1.gather(1, batch.action.long().view(-1, 1)).squeeze(1)
        loss = 0.5 * (q_tm1 - batch.target).square().mean()
        return Loss(loss, {"q_mean": output_tm1.mean, "target_mean": batch.target.mean})

    def _value(self, obs: Tensor) -> Tensor:
        """The value of the best action, ``[B]``."""
        value: Tensor = self.q(obs).float().amax(1)
        return value

    def _legal_value(self, rows: Tensor) -> Tensor:
        """The value of the best legal action, ``[B]``, for observations with their masks behind them."""
        obs, masks = rows[:, : -self.env.num_actions], rows[:, -self.env.num_actions :]
        return legal(self.q(obs).float(), masks != 0).amax(1)

    def distribution(self) -> EpsilonGreedy:
        """Epsilon-greedy on the action values."""
        return self.exploring()
