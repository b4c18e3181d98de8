"""The base of every callback."""

from __future__ import annotations

from typing import ClassVar

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
from spreeze_zmq.callbacks.live_run import LiveRun


class Callback:
    """Override what you want to hear. ``run`` is the live run, with ``run.stop(reason)``,
    ``run.set(name, value)``, ``run.note(text)`` and ``run.folder``.

    >>> class StopWhenSolved(Callback):
    ...     def on_evaluation(self, run, evaluation):
    ...         if evaluation.confirmed and evaluation.mean_return > 475:
    ...             run.stop("solved")

    All methods of one callback are called from one thread, in the order in which things happened. Training
    waits for none of them. One that raises is named with its line, and that callback is called no more. What
    a slow one cannot take is left out, and said; at the end of the run it has 3 s to catch up.

    Attributes:
        needs: modules that it imports when it is called, which must be installed.
    """

    needs: ClassVar[tuple[str, ...]] = ()

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
