"""What one end of a channel has taken and refused, by sender, kind and word; no peer can fill it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.errors import WireError
from spreeze_zmq.plan.keys import BAD_KEYS

log = logging.getLogger("spreeze")

#: Refusals that are counted apart, and senders whose messages are counted; those after them count as one.
MOST_REFUSALS, MOST_SENDERS = 16, 256
OTHERS = "others"
#: Characters that are kept of an example.
LONGEST_EXAMPLE = 240
#: The first refusal of each is logged at once, later ones at most this often.
LOG_INTERVAL_S = 60.0


@dataclass
class Refusal:
    """Messages of one sender and kind that were refused for the same reason.

    Attributes:
        first: of the first one, what came and what was expected.
        count: of the messages.
        logged_s: when it was logged last.
    """

    first: str
    count: int = 0
    logged_s: float = 0.0


class Refusals:
    """Counts the messages of one end of a channel.

    Args:
        place: what logs call this end.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._good: Counter[tuple[str, str]] = Counter()
        self._refused: dict[tuple[str, str, str], Refusal] = {}

    def take(self, sender: str, kind: str) -> None:
        """Count a message that was taken."""
        key = (sender, kind)
        if key not in self._good and len(self._good) >= MOST_SENDERS:
            key = (OTHERS, kind)
        self._good[key] += 1

    def refuse(self, error: WireError, sender: str, kind: str, *, taken: bool = False) -> None:
        """Count a message that was refused, one that was ``taken`` before included, and log why."""
        if taken:
            self._good[sender, kind] -= 1
        key = (sender, kind, error.reason)
        if key not in self._refused and len(self._refused) >= MOST_REFUSALS:
            key = (OTHERS, "", OTHERS)
        refusal = self._refused.setdefault(key, Refusal(error.detail[:LONGEST_EXAMPLE]))
        refusal.count += 1
        now_s = time.monotonic()
        if refusal.count == 1 or now_s >= refusal.logged_s + LOG_INTERVAL_S:
            refusal.logged_s = now_s
            if error.reason == BAD_KEYS:  # no message, and its detail names the endpoint
                log.warning("%s (%d so far)", error.detail, refusal.count)
                return
            what = f"a {kind or 'message'} of {sender or 'an unknown sender'}"
            log.warning("%s: refused %s (%d so far): %s", self._place, what, refusal.count, error)

    def rows(self) -> list[dict[str, Any]]:
        """For the report of the process; ``good`` counts what was taken of the same sender and kind."""
        return [
            {
                "sender": sender,
                "kind": kind,
                "word": word,
                "count": refusal.count,
                "first": refusal.first,
                "good": max(0, self._good[sender, kind]),
            }
            for (sender, kind, word), refusal in self._refused.items()
        ]
