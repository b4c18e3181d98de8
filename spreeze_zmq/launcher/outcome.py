"""How a run ends: why, what failed in it, what it went on without, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import write_json
from spreeze_zmq.launcher import closing
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.supervisor import GaveUp

#: Most failures that are kept, half of them the first and half the newest; the broker counts them all.
FAILURES_KEPT = 100
#: Most of the machines that are silent, and most of what the run ended without, that its last line names.
MOST_SILENT, MOST_LOST = 3, 8


class Losses:
    """Groups that fail, and what is absent when the run is asked to end, each with the reason.

    Attributes:
        gone: a line for each process that is given up, and without which the run is no failure: the
            page, the callbacks.
    """

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._absent: dict[str, str] = {}
        self._silent: Sequence[str] = ()
        self.gone: list[str] = []
        self._is_settled = False

    def fail(self, name: str, what: str) -> None:
        """Note how a process has ended, if a run is not whole without it; it may come back."""
        if whose(name):
            self._failed[name] = what

    def add(self, event: GaveUp, note: Callable[[str], None]) -> None:
        """Note, also for the user, that an observer is given up."""
        name = event.name
        if words := whose(name):
            last = f", the last: {self._failed[name]}" if name in self._failed else ""
            self._failed[name] = event.reason.splitlines()[0] + last
            note(f"{words} is lost, and the run goes on without it: {self._failed[name]}")
        elif without := ROLES[name.rpartition("-")[0]].without:
            self.gone.append(f"{str(event).splitlines()[0]}; {without}")
            note(self.gone[-1])

    def settle(
        self,
        living: Collection[str],
        groups: Mapping[str, Mapping[str, Any]],
        absent: Mapping[str, str],
        silent: Sequence[str],
    ) -> None:
        """Keep what the run lacks when it is asked to end; what ends after the first call is no loss.

        Args:
            living: the processes that are alive.
            groups: the rows of the last status.
            absent: machines and processes that have no machine, each with the reason.
            silent: lines about what may be absent, too.
        """
        if self._is_settled:
            return
        self._is_settled, self._absent, self._silent = True, dict(absent), silent
        for name in [name for name in self._failed if name in living and _is_back(name, groups)]:
            del self._failed[name]

    def write(self, folder: RunFolder, *, stopped_whole: bool) -> str:
        """Enter them in summary.json as ``lost``; returns them in one line, empty for none.

        Args:
            folder: the run's.
            stopped_whole: the signal to stop has reached all processes, so what was absent then had ended.
        """
        logs = f"{folder.shown}/logs"
        failed = {name: f"{why} ({logs}/{name}.log)" for name, why in self._failed.items()}
        lost = failed if stopped_whole else {**self._absent, **failed}
        if lost and folder.summary.exists():
            write_json(folder.summary, {**json.loads(folder.summary.read_text()), "lost": lost})
        lines = [f"the run ended without {whose(name) or name}: {why}" for name, why in lost.items()]
        return "; ".join(_newest(lines, MOST_LOST))

    @property
    def silent(self) -> Sequence[str]:
        """Lines about machines that were lent and are silent, which is no failure of the run; few of many."""
        return _newest(self._silent, MOST_SILENT)


def _newest(lines: Sequence[str], most: int) -> list[str]:
    """The last lines, and how many came before them."""
    left_out = len(lines) - most
    return [*([f"{left_out} more before these"] if left_out > 0 else []), *lines[-most:]]


def _is_back(name: str, groups: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a group that had failed was part of the last round."""
    row = groups.get(str(int(name.rpartition("-")[2]) + 1), {})
    return bool(row.get("rounds")) and not row.get("lost")


def whose(name: str) -> str:
    """What a run lacks without a process, in words; empty for nothing."""
    role, _, index = name.rpartition("-")
    words = ROLES[role].stands_for if role in ROLES else ""
    return words and f"{words.format(int(index) + 1)} ({name})"


@dataclass
class Outcome:
    """What the launcher has learned about the end of a run.

    Args:
        folder: the run's folder.
        plan: the run's.
        listens: the words of the command line that let other machines join.

    Attributes:
        stop_reason: why the run ends; empty while it goes on.
        is_over: nothing is waited for any more: the broker has ended the run, with its last checkpoint where
            there is one, or cannot.
        last_word: the last line, if any: why the run is no success, or what was lost on the way.
        gave_up: the run has failed.
        was_stopped_whole: a signal that asks to stop has reached all processes.
        input_fault: a process and the fault that it found in the user's input.
        end_fault: the first process that failed while the run ended, and its first line; empty for none.
        failures: processes and what happened to each; beyond ``FAILURES_KEPT`` the first and the newest.
        printed: the processes that have printed something, the first one first.
        losses: what the run goes on without.
    """

    folder: RunFolder
    plan: Plan
    listens: Sequence[str] = ()
    stop_reason: str = ""
    is_over: bool = False
    last_word: str = ""
    gave_up: bool = False
    was_stopped_whole: bool = False
    input_fault: tuple[str, str] | None = None
    end_fault: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)

    def stop(self, reason: str) -> None:
        """The run is over; the first reason counts."""
        self.stop_reason, self.is_over = self.stop_reason or reason, True

    def fail(self, name: str, what: str) -> None:
        """Note what has happened to a process."""
        self.failures.append((name, what))
        if len(self.failures) > FAILURES_KEPT:
            del self.failures[FAILURES_KEPT // 2]

    def fail_at_end(self, name: str, what: str) -> None:
        """Note that a process has failed while the run ends; nothing restarts it, so the first one counts."""
        self.end_fault = self.end_fault or f"{name} failed as the run ended: {what.splitlines()[0]}"

    def give_up(self, reason: str, last_word: str = "", *, saves: bool = False) -> None:
        """End the run as failed; this reason counts. Where it ``saves``, who writes its last checkpoint is
        sound: that may be waited for.
        """
        self.gave_up, self.stop_reason, self.last_word = True, reason, last_word or self.last_word
        self.is_over = self.is_over or not saves

    def settle(self, processes: Mapping[str, Mapping[str, Any]], *, at_once: bool) -> int:
        """The exit code: 2 where a process found the user's input at fault, 1 where the run failed, took no
        env step, had only episodes that failed, had a process that failed at its end, ended without what it
        was asked to have (``Losses``), or without its last checkpoint, unless it was to stop ``at_once``,
        otherwise 0.

        Args:
            processes: the rows of the last status.
            at_once: the user would not wait for the end.
        """
        fault_code = 1 if self.input_fault is None else InputError.exit_code
        if self.gave_up:
            self.folder.mark_failed()
            return fault_code
        failed = closing.why_no_step(self.folder, processes) or closing.why_no_episode(self.folder)
        lost = self.losses.write(self.folder, stopped_whole=self.was_stopped_whole)
        left_out = closing.why_no_checkpoint(self.folder)
        self.last_word = failed or "; ".join(
            filter(None, (self.end_fault, left_out, lost, *self.losses.gone, *self.losses.silent))
        )
        at_once = at_once or self.was_stopped_whole
        if self.end_fault and not failed:
            return fault_code
        return 1 if failed or lost or (left_out and not at_once) else 0

    @property
    def why(self) -> str:
        """Why the run has failed, in one line: a fault of the input, the first failure, or the last word."""
        fault = self.input_fault or next(iter(self.failures), None)
        found = self.last_word or (": ".join(fault) if fault else self.stop_reason)
        return next(iter(found.splitlines()), "")

    def lines(self) -> list[str]:
        """The lines at the end of a run."""
        ending = self.stop_reason, self.failures, self.input_fault, self.last_word
        left_out = closing.why_no_checkpoint(self.folder) if self.gave_up else ""
        return closing.closing_lines(
            self.folder, self.plan, *ending, left_out=left_out, printed=self.printed, listens=self.listens
        )
