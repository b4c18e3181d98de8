"""How a run ends: why, what failed in it, and with which exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.launcher import closing
from spreeze_zmq.launcher.losses import Losses
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder


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
