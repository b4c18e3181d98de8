"""The groups of a run: sets of samplers and learners that train apart, as the fuser tells of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spreeze_zmq.broker.rows import kept
from spreeze_zmq.wire.fields import MAX_COUNT


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
        life: whose figures the first two are; a member that is started again counts from 0.
    """

    env_steps: int = 0
    trained_transitions: int = 0
    rounds: int = 0
    received_bytes: int = 0
    distance: float = 0.0
    lost: bool = False
    life: int = field(default=0, metadata={"row": False})


@dataclass
class Groups:
    """The groups of a run, with what all lives of each have sampled and trained on.

    Attributes:
        rows: a row for each, by number, as the fuser told last; empty in a run of one.
        lives: group -> life -> the most env steps and trained transitions that were told of it, whichever
            fuser told.
    """

    rows: dict[str, Group] = field(default_factory=dict)
    lives: dict[str, dict[str, list[int]]] = kept(dict, "groups")

    def take(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the rows of a ``fusion``."""
        self.rows = groups_of(told)
        for name, row in self.rows.items():
            lives, counts = self.lives.get(name, {}), (row.env_steps, row.trained_transitions)
            if any(counts):
                self.lives[name] = lives
                before = lives.get(str(row.life), counts)
                lives[str(row.life)] = [*map(max, before, counts)]
            if lives:
                sums = (min(sum(each), MAX_COUNT - 1) for each in zip(*lives.values(), strict=True))
                row.env_steps, row.trained_transitions = sums


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
