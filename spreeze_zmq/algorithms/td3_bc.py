"""TD3 with behaviour cloning, TD3+BC (Fujimoto and Gu 2021, arXiv 2106.06860): learns from data alone, or
begins from demonstrations.

Names are by time, as in the transition ``(o_tm1, a_tm1, r_t, discount_t, o_t)``; equations are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spreeze_zmq.algorithms.declarations import TRANSITION_FIELDS, Loss
from spreeze_zmq.algorithms.sequences import steps_of
from spreeze_zmq.algorithms.td3 import TD3
from spreeze_zmq.algorithms.twin_critics import TwinCriticOptions
from spreeze_zmq.base.schema import option, with_default


class TD3BC(TD3):
    """TD3 whose policy also stays near the actions of the data, whose worth its critics know."""

    @dataclass(frozen=True)
    class Options(TD3.Options):
        """Options of TD3+BC."""

        learning_rate: float = with_default(TwinCriticOptions, "learning_rate", 3e-4)
        normalize_observations: bool = with_default(TD3.Options, "normalize_observations", True)
        value_weight: float = option(
            2.5,
            "weight of the policy's value, whose mean size is made 1 first; 0 clones alone",
            minimum=0.0,
            schedule=True,
        )
        cloning_weight: float = option(
            1.0,
            "weight of the squared distance from the data's actions, in actions of [-1, 1]; 0 is plain TD3",
            minimum=0.0,
            schedule=True,
        )

    options: Options
    policy_fields = TRANSITION_FIELDS

    def policy_loss(self, batch: Any) -> Loss:
        """The value of the policy's actions beside their distance from the data's: equations 3 and 5, with
        the mean ``|Q|`` of the policy's own actions, as in the authors' code, not of the data's.
        """
        steps = steps_of(batch, self.options, self.features, self.actions.unit)
        a_tm1 = self.actions.unit(steps.batch.action)
        a_policy = self.actions.mode(steps.outputs(self.head(self.policy)))
        q_tm1 = self.twins.expected(steps.outputs(self.critics, a_policy))[0]
        size = q_tm1.detach().abs().mean().clamp_min(1e-6)
        distance = (a_policy - a_tm1).square().mean()
        loss = self.options.cloning_weight * distance - self.options.value_weight * q_tm1.mean() / size
        return Loss(loss, {"cloning_distance": distance.detach()})
