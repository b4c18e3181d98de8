"""The broker's running notes: the journal, TensorBoard's curves, and the feed for observers."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.files import append_text, plain
from spreeze_zmq.base.journal import RESUMED, TURNED, Journal, Recent, read_journal, recent_of, time_of
from spreeze_zmq.broker.problems import Refused
from spreeze_zmq.broker.tensorboard import TensorBoard
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.wire import Message
from spreeze_zmq.wire.channels import Publisher

log = logging.getLogger("spreeze")

#: Most notes of one topic: at first, and more in each second of the run. No peer can fill the disk.
MOST_NOTES, NOTES_PER_S = 10_000, 4
#: The same for their bytes in the journal itself; beyond that they are among its recent lines alone.
MOST_BYTES, BYTES_PER_S = 8 << 20, 200
#: Of a note that is longer, in bytes, each text is cut to so many characters, and what else is long left out.
LONGEST_NOTE, CUT_TO = 32 << 10, 500
#: Rows of more processes than this are in the journal at most once in this time, and in that many lines.
MANY_ROWS, ROWS_INTERVAL_S, ROWS_INTERVAL = 50, 10.0, 10
#: A run's age up to which the journal has every line of figures; at ten times this age they are ten seconds
#: apart. A week has twelve thousand of each kind.
WHOLE_S = 1800.0
#: Least time between two entries of training episodes.
EPISODES_S = 1.0


def turned_in(metrics: Path, until_s: float = math.inf) -> dict[str, float]:
    """The options that were set while a run trained, or one that it goes on from, by its journal, which may
    be anybody's: the last number of each.
    """
    turned: dict[Any, Any] = {}
    for entry in read_journal(metrics, (RESUMED, "request")):
        if (time_of(entry) or 0.0) > until_s:
            continue
        if entry["kind"] == RESUMED:  # what holds from there on
            turned = dict(held) if isinstance(held := entry.get(TURNED), dict) else {}
        elif entry["kind"] == "request" and entry.get("what") == "set":
            turned[str(entry.get("option"))] = entry.get("value")
    is_one = re.compile(r"\w{1,40}", re.ASCII).fullmatch
    return {name: value for name, value in turned.items() if is_one(name) and type(value) in (int, float)}


class Thinning:
    """Which lines of figures are kept for good as a run ages: about as many for each doubling of its age.

    Attributes:
        began_s: when the run began, by the clock of the first of those that it goes on from.
    """

    def __init__(self) -> None:
        self.began_s = 0.0
        self._kept_s: dict[str, float] = {}

    def interval_s(self, t_s: float) -> float:
        """Least seconds between two lines that are kept at a time."""
        age_s = t_s - self.began_s
        return age_s / WHOLE_S if age_s > WHOLE_S else 0.0

    def keeps(self, kind: str, t_s: float) -> bool:
        """Whether the line of a kind that comes now is kept."""
        interval_s = self.interval_s(t_s)
        if interval_s and t_s - self._kept_s.get(kind, -math.inf) < interval_s:
            return False
        self._kept_s[kind] = t_s
        return True


class Tally:
    """Figures of training episodes, however many: a peer may send any number."""

    def __init__(self) -> None:
        self.count = 0
        self._first = self._sum = self._squares = 0.0
        self._least, self._most = math.inf, -math.inf

    def take(self, returns: NDArray[np.float32]) -> None:
        """Count returns ``[num_episodes]``."""
        if returns.size:
            self._first = self._first if self.count else float(returns[0])
            beyond = returns.astype(np.float64) - self._first  # large returns may differ little
            self.count += returns.size
            self._sum += float(beyond.sum())
            self._squares += float(beyond @ beyond)
            self._least = min(self._least, float(returns.min()))
            self._most = max(self._most, float(returns.max()))

    def figures(self) -> dict[str, Any]:
        """An entry of them; there must be one."""
        beyond = self._sum / self.count
        std = math.sqrt(max(0.0, self._squares / self.count - beyond * beyond))
        return {
            "count": self.count,
            "mean": self._first + beyond,
            "std": std,
            "min": self._least,
            "max": self._most,
        }


def bounded(about: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """The fields of a note, cut where they are too long, and their bytes as JSON."""
    if (size := _size(about)) > LONGEST_NOTE:
        about = {name: _short(name, value) for name, value in about.items()}
        size = _size(about)
    return about, size


def _size(value: Any) -> int:
    return len(json.dumps(plain(value)))


def _short(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value[-CUT_TO:] if name == "traceback" else value[:CUT_TO]
    return value if _size(value) <= CUT_TO else type(value)()


class Notes:
    """Writes and publishes entries by topic; times in seconds since the run began.

    Args:
        folder: the run's.
        feed: the channel of observers.
        hear: also gets each line of the journal that has figures: its topic, time and fields.
        offline: whether the run has no samplers.
    """

    def __init__(
        self,
        folder: RunFolder,
        feed: Publisher,
        hear: Callable[[str, float, Mapping[str, Any]], None] = lambda *_: None,
        *,
        offline: bool = False,
    ) -> None:
        self._folder, self._feed, self._hear = folder, feed, hear
        self.journal = Journal(folder.metrics)
        self.tensorboard = TensorBoard(folder.path, offline=offline)
        self.thinning = Thinning()
        self._recent: Recent | None = None
        self._noted: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._rows_due_s: dict[tuple[str, bool], float] = {}
        self._ended, self._unwritten = Tally(), Tally()
        self._episodes_due_s = -math.inf

    def publish(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Publish one entry for observers."""
        self._feed.publish(Message("entry", {"topic": topic, "t_s": round(t_s, 3), "about": dict(about)}))

    def note(self, topic: str, about: Mapping[str, Any], t_s: float) -> None:
        """Write one line of the journal and publish it, unless a peer floods the topic."""
        if self._noted[topic] < MOST_NOTES + NOTES_PER_S * t_s:
            self._noted[topic] += 1
            about, size = bounded(about)
            passes = topic == "evaluation" and not (about.get("best") or about.get("final"))
            kept = not passes or self.thinning.keeps(topic, t_s)
            kept = kept and self._bytes[topic] + size < MOST_BYTES + BYTES_PER_S * t_s
            self._bytes[topic] += size * kept
            self._place(kept).write(topic, t_s, about)
            self._hear(topic, t_s, about)
            self.publish(topic, about, t_s)

    def status(
        self, status: Mapping[str, Any], gauges: Mapping[str, float], t_s: float, *, last: bool = False
    ) -> None:
        """Write a status to the journal, and it and the learners' ``gauges`` as points of the curves; the
        ``last`` one of a run is kept.
        """
        count = len(status["processes"]) + sum(row["count"] for row in status.get("others", {}).values())
        without = {**status, "processes": {}}
        kept = self.figures("status", t_s, count, lambda rows: status if rows else without, last=last)
        self._hear("status", t_s, status)
        if kept:
            self.tensorboard.status(status, gauges)

    def figures(
        self,
        kind: str,
        t_s: float,
        count: int,
        fields: Callable[[bool], Mapping[str, Any]],
        *,
        last: bool = False,
    ) -> bool:
        """Write a line of figures; returns whether it is kept for good.

        Args:
            kind: of the line.
            t_s: now.
            count: processes that have rows in it.
            fields: gives its fields with or without these rows.
            last: it is kept in any case.
        """
        kept = self.thinning.keeps(kind, t_s) or last
        rows = count <= MANY_ROWS or t_s >= self._rows_due_s.get((kind, kept), 0.0)
        if rows and count > MANY_ROWS:
            interval_s = max(ROWS_INTERVAL_S, ROWS_INTERVAL * self.thinning.interval_s(t_s) * kept)
            self._rows_due_s[kind, kept] = t_s + interval_s
        self._place(kept).write(kind, t_s, fields(rows))
        return kept

    def _place(self, kept: bool) -> Journal:
        """Where a line is written: lines that are not kept are there for some minutes."""
        if kept:
            return self.journal
        self._recent = self._recent or Recent(recent_of(self._folder.metrics))
        return self._recent

    def refusals(self, news: Iterable[Refused], t_s: float) -> None:
        """Log and note refusals, also in the log of each sender."""
        for refused in news:
            row = to_plain(refused.row(t_s))
            log.warning("%s", row["line"])
            self.note("refused", row, t_s)
            own = self._folder.logs / f"{refused.sender}.log"
            if re.fullmatch(r"\w+-\d+", refused.sender, re.ASCII) and os.path.exists(own):  # of any length
                with contextlib.suppress(OSError), append_text(own) as file:
                    file.write(f"[broker] {row['line']}\n")

    def episodes_ended(self, returns: NDArray[np.float32]) -> None:
        """Count returns of training episodes ``[num_episodes]`` for the next :meth:`note_episodes`."""
        for tally in (self._ended, self._unwritten):
            tally.take(returns)

    def note_episodes(self, t_s: float, *, last: bool = False) -> None:
        """Note the training episodes that have ended, at most every ``EPISODES_S``; the journal's next line
        has them all.
        """
        if t_s < self._episodes_due_s and not last:
            return
        if self._ended.count:
            self._episodes_due_s = t_s + EPISODES_S
            figures, self._ended = self._ended.figures(), Tally()
            self._hear("episodes", t_s, figures)
            self.publish("episodes", figures, t_s)
        if self._unwritten.count and (self.thinning.keeps("episodes", t_s) or last):
            figures, self._unwritten = self._unwritten.figures(), Tally()
            self.journal.write("episodes", t_s, figures)

    def close(self) -> None:
        self.journal.close()
        if self._recent is not None:
            self._recent.close()
        self.tensorboard.close()
