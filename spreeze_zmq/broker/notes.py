"""The broker's running notes: the journal, TensorBoard's curves, and the feed for observers."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.files import Journal
from spreeze_zmq.broker.tensorboard import TensorBoard
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher

#: Kind of the entry where a run goes on from another, and the field of the entries from before it.
RESUMED, INHERITED = "resumed", "inherited"
#: Most notes of one topic: at first, and more in each second of the run. No peer can fill the disk.
MOST_NOTES, NOTES_PER_S = 10_000, 4
#: Rows of more processes than this are in the journal at most once in this time.
MANY_ROWS, ROWS_INTERVAL_S = 50, 10.0


class Notes:
    """Writes and publishes entries by topic; times in seconds since the run began.

    Args:
        folder: the run's.
        feed: the channel of observers.
        hear: also gets each line of the journal that has figures: its topic, time and fields.
    """

    def __init__(
        self,
        folder: RunFolder,
        feed: Publisher,
        hear: Callable[[str, float, Mapping[str, Any]], None] = lambda *_: None,
    ) -> None:
        self._folder, self._feed, self._hear = folder, feed, hear
        self.journal, self.tensorboard = Journal(folder.metrics), TensorBoard(folder.path)
        self._noted: Counter[str] = Counter()
        self._rows_due_s: dict[str, float] = {}
        self._ended: list[NDArray[np.float32]] = []

    def publish(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Publish one entry for observers."""
        self._feed.publish(Message("entry", {"topic": topic, "t_s": round(t_s, 3), "about": dict(about)}))

    def note(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Write one line of the journal and publish it, unless a peer floods the topic."""
        if self._noted[topic] < MOST_NOTES + NOTES_PER_S * t_s:
            self._noted[topic] += 1
            self.journal.write(topic, t_s, about)
            self._hear(topic, t_s, about)
            self.publish(topic, about, t_s)

    def status(self, status: Mapping[str, Any], gauges: Mapping[str, float], t_s: float) -> None:
        """Write a status to the journal, and it and the learners' ``gauges`` as points of the curves."""
        self.journal.write("status", t_s, self.kept(status, t_s))
        self._hear("status", t_s, status)
        self.tensorboard.status(status, gauges)

    def kept(self, status: Mapping[str, Any], t_s: float) -> Mapping[str, Any]:
        """A status as the journal has it."""
        others = sum(row["count"] for row in status.get("others", {}).values())
        has_rows = self.rows_due("status", len(status["processes"]) + others, t_s)
        return status if has_rows else {**status, "processes": {}}

    def rows_due(self, topic: str, count: int, t_s: float) -> bool:
        """Whether the next entry of a topic has the rows of its ``count`` processes."""
        if count <= MANY_ROWS:
            return True
        if t_s < self._rows_due_s.get(topic, 0.0):
            return False
        self._rows_due_s[topic] = t_s + ROWS_INTERVAL_S
        return True

    def refused(self, sender: str, row: Mapping[str, Any], t_s: float) -> None:
        """Note a refusal, also in the log of the sender of the refused message."""
        self.note("refused", row, t_s)
        own = self._folder.logs / f"{sender}.log"
        if re.fullmatch(r"\w+-\d+", sender, re.ASCII) and own.exists():
            with contextlib.suppress(OSError), own.open("a", encoding="utf-8") as file:
                file.write(f"[broker] {row['line']}\n")

    def episodes_ended(self, returns: NDArray[np.float32]) -> None:
        """Keep returns of training episodes ``[num_episodes]`` for the next :meth:`note_episodes`."""
        self._ended.append(returns)

    def note_episodes(self, t_s: float) -> None:
        """Note the training episodes that ended since the last call."""
        if not self._ended:
            return
        returns, self._ended = np.concatenate(self._ended), []
        about = {"count": returns.size, "mean": float(returns.mean()), "std": float(returns.std())}
        about |= {"min": float(returns.min()), "max": float(returns.max())}
        self.note("episodes", about, t_s)

    def close(self) -> None:
        self.journal.close()
        self.tensorboard.close()
