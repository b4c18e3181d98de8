"""The stages of processes in words; the launcher knows the first ones, the broker's status the later ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The stage of a process that is set up and does not wait for another.
RUNNING = "running"


@dataclass
class Group:
    """Processes of one role at the same stage.

    Attributes:
        role: of all of them.
        stage: of all of them.
        names: of the processes.
        figures: status rows of those that have reported.
    """

    role: str
    stage: str
    names: list[str]
    figures: list[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """The role, with the number of processes if there are several."""
        role = self.role.replace("_", " ")
        return role if len(self.names) == 1 else f"{len(self.names)} {role}s"

    def mean(self, name: str) -> float:
        """Mean of a figure over the processes that have reported."""
        return self.sum(name) / max(1, len(self.figures))

    def sum(self, name: str) -> float:
        """Sum of a figure over the processes that have reported."""
        return sum(float(row[name]) for row in self.figures)


def stage_of(heard: Mapping[str, Any]) -> str:
    """The stage of a process from its row of the status."""
    if waiting_for := heard.get("waiting_for"):
        # the socket's address is for the log
        return "waits for " + re.sub(r" \([^()]*://[^()]*\)$", "", str(waiting_for))
    return RUNNING if heard.get("ready") else "setting up"


def groups_of(stages: Mapping[str, str], heard: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Group processes by role and stage, in the order of ``stages``; processes that only the status knows,
    which another program has started, come last.

    Args:
        stages: of the launcher's processes, by name.
        heard: the rows of the status, by name.
    """
    all_stages = {**stages, **{name: stage_of(row) for name, row in heard.items() if name not in stages}}
    groups: dict[tuple[str, str], Group] = {}
    for name, stage in all_stages.items():
        role = name.rpartition("-")[0]
        group = groups.setdefault((role, stage), Group(role, stage, [], []))
        group.names.append(name)
        if name in heard:
            group.figures.append(heard[name])
    return list(groups.values())
