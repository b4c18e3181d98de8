"""The processes that a run goes on without, although it does not do all that its topology says then."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from spreeze_zmq.base.files import write_json
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.run.folder import RunFolder


class Losses:
    """Processes that are not started again, each with the reason; one may still find another machine."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def add(self, name: str, why: str, note: Callable[[str], None]) -> None:
        """Note that a process has failed for good, if a run is not whole without it."""
        if _whose(name):
            self._why[name] = why.splitlines()[0]
            note(f"{_whose(name)} ({name}) is lost, and the run goes on without it: {self._why[name]}")

    def settle(self, alive: Collection[str]) -> None:
        """Keep those of which no process is alive at the end of the run."""
        self._why = {name: why for name, why in self._why.items() if name not in alive}

    def write(self, folder: RunFolder) -> str:
        """Enter them in summary.json as ``lost``; returns them in one line, empty for none."""
        if self._why and folder.summary.exists():
            write_json(folder.summary, {**json.loads(folder.summary.read_text()), "lost": self._why})
        return "; ".join(
            f"the run went on without {_whose(name)}, which had failed for good: {why} "
            f"({folder.shown}/logs/{name}.log)"
            for name, why in self._why.items()
        )


def _whose(name: str) -> str:
    """What a run lacks without a process, in words; empty for nothing."""
    role, _, index = name.rpartition("-")
    return ROLES[role].stands_for.format(int(index) + 1) if role in ROLES else ""
