"""The base of every callback, and the handle by which it asks its run for something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from spreeze_zmq.broker.requests import LONGEST_TEXT, NOTE, SET, STOP
from spreeze_zmq.callbacks.events import (
    Best,
    Checkpoint,
    Ended,
    Episodes,
    Evaluation,
    Failure,
    Started,
    Status,
)
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
        """End the run in good order: a last checkpoint, the last policy evaluated, exit code 0. Meanwhile the
        callback is called as before; only the first reason that it gives is noted.
        """
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


class Callback:
    """Override what you want to hear. ``run`` is the live run, with ``run.stop(reason)``,
    ``run.set(name, value)``, ``run.note(text)`` and ``run.folder``.

    >>> class StopWhenSolved(Callback):
    ...     def on_evaluation(self, run, evaluation):
    ...         if evaluation.confirmed and evaluation.mean_return > 475:
    ...             run.stop("solved")

    All methods of one callback are called from one thread, in the order in which things happened. Training
    waits for none of them. One that raises is named with its line, and that callback is called no more. What
    a slow one cannot take is left out, and said; at the end of the run it has ``end_s`` to catch up.

    Attributes:
        needs: modules that it imports when it is called, which must be installed.
        oldest: of some of them, the first release with what it asks for.
        end_s: seconds from the end of the run until it is left, whatever it still does.
        if_left: what becomes of that, and what to do then; ``{folder}`` is the run's.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    oldest: ClassVar[Mapping[str, str]] = {}
    end_s: float = 3.0
    if_left: str = ""

    def on_started(self, run: LiveRun, started: Started) -> None:
        """The run has been launched; called first."""

    def on_status(self, run: LiveRun, status: Status) -> None:
        """The figures of the run, about twice a second."""

    def on_episodes(self, run: LiveRun, episodes: Episodes) -> None:
        """Training episodes have ended; at most once a second."""

    def on_evaluation(self, run: LiveRun, evaluation: Evaluation) -> None:
        """A policy has been evaluated."""

    def on_best(self, run: LiveRun, best: Best) -> None:
        """There is a new best policy; after its evaluation."""

    def on_checkpoint(self, run: LiveRun, checkpoint: Checkpoint) -> None:
        """A checkpoint is complete."""

    def on_failure(self, run: LiveRun, failure: Failure) -> None:
        """Something has failed, and the run goes on."""

    def on_ended(self, run: LiveRun, ended: Ended) -> None:
        """The run is over; called last, also where it failed."""
