"""The groups of a run: sets of samplers and learners that train apart, as the fuser tells of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Group:
    """One group. What it counts is as of the last model that it has sent.

    Attributes:
        env_steps: transitions that it has sampled.
        trained_transitions: that its critic-learner has trained on.
        rounds: that it was part of, with the half that was part of fewer.
        received_bytes: of its models.
        distance: of its last model from the fused one, over the length of that; the largest of its halves.
        lost: the last round has closed without it.
    """

    env_steps: int = 0
    trained_transitions: int = 0
    rounds: int = 0
    received_bytes: int = 0
    distance: float = 0.0
    lost: bool = False


def groups_of(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Group]:
    """The groups in a ``fusion``; figures that are no finite numbers are left out."""
    known = {item.name: type(item.default) for item in fields(Group)}
    return {
        name: Group(**{key: value for key, value in row.items() if _is_right(known.get(key), value)})
        for name, row in rows.items()
        if name.isdecimal()
    }


def _is_right(kind: type | None, value: Any) -> bool:
    return type(value) is kind and (not isinstance(value, float) or math.isfinite(value))
