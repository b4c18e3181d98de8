"""What a policy file says of its environment's own spaces, which its engine adapts for the networks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from spreeze_zmq.policy.actor import Actions


class OwnEnvironment:
    """Converts to the environment's own actions.

    Args:
        environment: the ``environment`` of run.json; empty where it is not known.
        description: of the policy; its ``distribution`` is read.

    Attributes:
        action_start: the number that each discrete action counts from; empty if all count from 0.

    Raises:
        ValueError: the table does not fit the policy.
    """

    def __init__(self, environment: Mapping[str, Any], description: Mapping[str, Any]) -> None:
        start = self.action_start = _integers(environment, "action_start")
        if start and len(start) != (num := _num_choices(description["distribution"])):
            raise ValueError(f"action_start has {len(start)} numbers for {num} discrete actions")

    @classmethod
    def described(cls, metadata: Mapping[str, str], description: Mapping[str, Any]) -> Self:
        """As the metadata of a policy file describe it. Raises ValueError."""
        environment = json.loads(metadata.get("environment", "{}"))
        if not isinstance(environment, dict):
            raise ValueError("its environment is not a table")
        return cls(environment, description)

    def action(self, action: Actions) -> Actions:
        """The environment's own actions for actions ``[N, *action_shape]`` that count from 0."""
        return shifted(action, np.asarray(self.action_start)) if self.action_start else action


def shifted(action: Any, start: Any) -> Any:
    """Discrete actions ``[N]`` or ``[N, A]`` that count from 0, counted from ``start`` ``[A]``."""
    return action + (start if action.ndim > 1 else start[0])


def _integers(table: Mapping[str, Any], name: str) -> tuple[int, ...]:
    values = table.get(name, [])
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"{name} is {values!r:.60}, expected a list of integers")
    return tuple(np.asarray(values, np.int64).tolist())


def _num_choices(distribution: Mapping[str, Any]) -> int:
    """How many discrete actions the policy chooses at once."""
    if distribution["kind"] == "epsilon_greedy":
        return 1
    return len(distribution["sizes"]) if distribution["kind"] == "categorical" else 0
