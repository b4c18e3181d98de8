"""What an algorithm declares: its networks, its losses, and the rollout arrays that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

#: Rollout arrays that hold whole transitions.
TRANSITION_FIELDS = ("obs", "action", "reward", "terminated", "truncated", "final_obs", "final_index")
#: Rollout arrays that stacks of observations are built from.
STACK_FIELDS = ("obs", "terminated", "truncated", "history")
#: The names of the two losses and of the parts that they train.
PARTS = ("critic", "policy")


@dataclass(frozen=True)
class Networks:
    """The networks of an algorithm by name; the library sets each as an attribute of the algorithm.

    Attributes:
        critic: trained by ``critic_loss`` in the critic-learner, sent to the actor-learner.
        policy: trained by ``policy_loss`` in the actor-learner, sent to all other processes.
        targets: moved by ``after_critic_step`` in the critic-learner and saved in its checkpoints; neither
            trained nor sent, so in the actor-learner they keep their initial weights.
        acting: name of the network whose output the ``distribution`` turns into actions, one of ``policy``
            where there is a ``policy_loss``. With a :meth:`Algorithm.memory_size` of ``M`` it is called as
            ``network(obs, memory)``, with ``memory`` ``[N, M]``, and returns its output and the next memory.
    """

    critic: Mapping[str, torch.nn.Module]
    policy: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    targets: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    acting: str = "policy"


class Loss(NamedTuple):
    """What a loss function returns.

    Attributes:
        loss: the scalar whose gradient is taken.
        metrics: 0-d tensors by name, for the log; or functions that return one, called only in updates whose
            metrics are recorded.
        priorities: ``[B]``, the absolute error of each transition, for a prioritised replay.
        rate_factor: 0-d, by which the learning rate of the part is multiplied before this step and for good;
            1 where it stays. A loss that gives none at its first step moves no rate.
    """

    loss: torch.Tensor
    metrics: Mapping[str, torch.Tensor | Callable[[], torch.Tensor]] = {}
    priorities: torch.Tensor | None = None
    rate_factor: torch.Tensor | None = None
