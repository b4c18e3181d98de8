"""The launcher of a member: runs one more group of samplers and learners within a member's process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.launcher.interrupts import Interrupts
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.plan.groups import plan_of_member
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import GROUPS, RunFolder
from spreeze_zmq.screen.terminal.view import View

log = logging.getLogger("spreeze")


class LogView(View):
    """Writes each event to the log of the member's process."""

    def note(self, line: str) -> None:
        """Show one event."""
        log.info("%s", line)


class Asked(Interrupts):
    """Stop requests of the process that the launcher is a thread of."""

    def heed(self) -> None:
        """The process handles its own signals."""

    def ask(self, by: str) -> None:
        """One more request."""
        self.by, self.count = by, self.count + 1


class MemberRun(threading.Thread):
    """One group from its start to its end.

    Args:
        plan: of the whole run, as the member's process has it.
        index: of the member among the members.
        life: numbers that tell its life from others, as of ``plan_of_member``.

    Attributes:
        status: the newest of the group's broker.
        code: the group's exit code; None before its end.
        last_word: why it has failed; empty if it has not.
        crashed_at_end: a process of it, or its launcher, has failed while it ended.
    """

    def __init__(self, plan: Plan, index: int, life: Sequence[int] = ()) -> None:
        super().__init__(name="group", daemon=True)
        self.number = index + 1
        self._plan = plan_of_member(plan, self.number, available_cores(), life)
        self._parent = Path(plan.run_dir) / GROUPS
        self._asked = Asked()
        self.status: Mapping[str, Any] = {}
        self.code: int | None = None
        self.last_word = ""
        self.crashed_at_end = False

    def stop(self, reason: str) -> None:
        """Have the group end as by Ctrl-C; does not wait for that."""
        self._asked.ask(reason)

    def run(self) -> None:
        """Launch the group, and see it to its end."""
        try:
            launch = Launch(self._plan, self._new_folder(), LogView(), interrupts=self._asked)
            self.code = launch.run()
            self.last_word = launch.outcome.why
            self.crashed_at_end = bool(launch.outcome.end_fault)
        except Exception as error:
            log.exception("the group has failed")
            self.code, self.last_word = 1, f"{type(error).__name__}: {error}"
            self.crashed_at_end = True

    def failure(self, *, asked: bool) -> SpreezeError | None:
        """What the run hears of its end; None for nothing.

        Args:
            asked: it was to end, so that what it lacks then, as a first step, is no failure: a crash is.
        """
        if asked and not self.crashed_at_end:
            return None
        error = InputError if self.code == InputError.exit_code else SpreezeError
        return error(f"group {self.number} has ended: {self.last_word}")

    def _new_folder(self) -> RunFolder:
        """A new one for each life of the member."""
        names = (f"{self.number}{life}" for life in ("", *(f"-{count}" for count in range(2, 10_000))))
        path = next(self._parent / name for name in names if not (self._parent / name).exists())
        return RunFolder.create(self._plan.name, str(path))
