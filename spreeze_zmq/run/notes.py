"""What the broker writes down of a run as it goes: the journal, TensorBoard, and the feed for observers."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.channels import Publisher
from spreeze_zmq.metrics import Journal, TensorBoard
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message

#: Notes of one topic in a run; a peer that repeats itself fills no disk.
MOST_NOTES = 10_000


class Notes:
    """Entries by topic, written to the run's folder and published; times in seconds since the run began."""

    def __init__(self, folder: RunFolder, feed: Publisher) -> None:
        self._folder, self._feed = folder, feed
        self.journal, self.tensorboard = Journal(folder.metrics), TensorBoard(folder.path)
        self._noted: Counter[str] = Counter()
        self._ended: list[NDArray[np.float32]] = []

    def publish(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Publish one entry for observers."""
        self._feed.publish(Message("entry", {"topic": topic, "t_s": round(t_s, 3), "about": dict(about)}))

    def note(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Write one line of the journal and publish it."""
        self._noted[topic] += 1
        if self._noted[topic] <= MOST_NOTES:
            self.journal.write(topic, t_s, about)
            self.publish(topic, about, t_s)

    def refused(self, sender: str, row: Mapping[str, Any], t_s: float) -> None:
        """Note a refusal, also in the log of the process that sent the message."""
        self.note("refused", row, t_s)
        own = self._folder.logs / f"{sender}.log"
        if re.fullmatch(r"\w+-\d+", sender, re.ASCII) and own.exists():
            with contextlib.suppress(OSError), own.open("a", encoding="utf-8") as file:
                file.write(f"[broker] {row['line']}\n")

    def episodes_ended(self, returns: NDArray[np.float32]) -> None:
        """Keep the returns of training episodes ``[num_episodes]`` for the next entry of them."""
        self._ended.append(returns)

    def note_episodes(self, t_s: float) -> None:
        """Note the training episodes that have ended since the last call."""
        if not self._ended:
            return
        returns, self._ended = np.concatenate(self._ended), []
        figures = {"mean": returns.mean(), "std": returns.std(), "min": returns.min(), "max": returns.max()}
        values = {name: float(value) for name, value in figures.items()}
        self.note("episodes", {"count": returns.size, **values}, t_s)

    def close(self) -> None:
        """Close the files."""
        self.journal.close()
        self.tensorboard.close()
