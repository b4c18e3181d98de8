"""How a run ends: why, what failed in it, what it went on without, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import write_json
from spreeze_zmq.launcher import closing
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.run.folder import RunFolder


class Losses:
    """Processes that a run goes on without, each with the reason; one may still find another machine."""

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


@dataclass
class Outcome:
    """What the launcher has learned about the end of a run.

    Args:
        folder: the run's folder.
        plan: the run's.

    Attributes:
        stop_reason: why the run ends; empty while it goes on.
        last_word: the last line, if any: why the run is no success.
        gave_up: the run has failed.
        was_stopped_whole: a signal that asks to stop has reached all processes.
        input_fault: a process and the fault that it found in the user's input.
        failures: processes and what happened to each.
        printed: the processes that have printed something, the first one first.
        losses: the processes that the run goes on without.
    """

    folder: RunFolder
    plan: Plan
    stop_reason: str = ""
    last_word: str = ""
    gave_up: bool = False
    was_stopped_whole: bool = False
    input_fault: tuple[str, str] | None = None
    failures: list[tuple[str, str]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)

    def stop(self, reason: str) -> None:
        """End the run; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def give_up(self, reason: str, last_word: str = "") -> None:
        """End the run as failed; this reason counts."""
        self.gave_up, self.stop_reason, self.last_word = True, reason, last_word or self.last_word

    def settle(self, processes: Mapping[str, Mapping[str, Any]], *, at_once: bool) -> int:
        """The exit code: 2 where a process found the user's input at fault, 1 where the run failed, took no
        env step, had only episodes that failed, went on without a group or ended without its last checkpoint,
        unless it was to stop ``at_once``, otherwise 0.

        Args:
            processes: the rows of the last status.
            at_once: the user would not wait for the end.
        """
        if self.gave_up:
            return 1 if self.input_fault is None else InputError.exit_code
        failed = closing.why_no_step(self.folder, processes) or closing.why_no_episode(self.folder)
        lost, left_out = self.losses.write(self.folder), closing.why_no_checkpoint(self.folder)
        self.last_word = failed or "; ".join(filter(None, (left_out, lost)))
        at_once = at_once or self.was_stopped_whole
        return 1 if failed or lost or (left_out and not at_once) else 0

    def lines(self) -> list[str]:
        """The lines at the end of a run."""
        ending = self.stop_reason, self.failures, self.input_fault, self.last_word
        return closing.closing_lines(self.folder, self.plan, *ending, printed=self.printed)
