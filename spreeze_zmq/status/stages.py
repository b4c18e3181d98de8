"""What each process does, in words: the launcher knows it from the first second, the broker what follows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The stage of a process that is set up and waits for nobody.
RUNNING = "running"


@dataclass
class Group:
    """Processes of one role at the same stage.

    Attributes:
        role: theirs.
        stage: theirs.
        names: of the processes.
        figures: of those that have reported, from the status.
    """

    role: str
    stage: str
    names: list[str]
    figures: list[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """The role, or their number and the role."""
        role = self.role.replace("_", " ")
        return role if len(self.names) == 1 else f"{len(self.names)} {role}s"

    def mean(self, name: str) -> float:
        """Mean of a figure."""
        return self.sum(name) / max(1, len(self.figures))

    def sum(self, name: str) -> float:
        """Sum of a figure."""
        return sum(float(row[name]) for row in self.figures)


def stage_of(heard: Mapping[str, Any]) -> str:
    """The stage of a process by what the status says of it."""
    if waiting_for := heard.get("waiting_for"):
        # which socket it is matters in a log, not here
        return "waits for " + re.sub(r" \([^()]*://[^()]*\)$", "", str(waiting_for))
    return RUNNING if heard.get("ready") else "setting up"


def groups_of(stages: Mapping[str, str], heard: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """Groups in the order of ``stages``; then those that only the status knows, started by somebody else.

    Args:
        stages: by name of each process of the launcher.
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
