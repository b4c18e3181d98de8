"""The handle by which a callback asks its run for something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.broker.requests import LONGEST_TEXT, NOTE, SET, STOP
from spreeze_zmq.plan import moves
from spreeze_zmq.plan.plan import Plan

#: Puts the fields of a ``request`` in line; returns at once.
Ask = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class LiveRun:
    """The run that a callback hears of. No method waits: the broker does what is asked within a second, and
    writes who asked for what, and when, into the journal. What comes beyond 100 requests at once, and one a
    second after, is refused.

    Attributes:
        folder: the run's.
        plan: the run, with every default filled in.
        who: the callback's name, as the run shows it.
    """

    folder: Path
    plan: Plan
    who: str
    _ask: Ask

    def stop(self, reason: str) -> None:
        """End the run in good order: a last checkpoint, the last policy evaluated, exit code 0."""
        self._ask({"who": self.who, "what": STOP, "text": str(reason)[:LONGEST_TEXT]})

    def set(self, name: str, value: float) -> None:
        """Use another number for an option from now on: ``learning_rate``, ``replay_ratio``, or any option of
        the algorithm that may be a schedule; of all networks that have it, instead of its schedule.

        Raises:
            InputError: there is no such option, it may not move in this run, or it takes no such value; the
                message says which may.
        """
        number = moves.checked(self.plan, name, value.item() if hasattr(value, "item") else value)
        self._ask({"who": self.who, "what": SET, "option": name, "value": number})

    def note(self, text: str) -> None:
        """Write a line into the run's journal, terminal and page."""
        self._ask({"who": self.who, "what": NOTE, "text": str(text)[:LONGEST_TEXT]})
