"""Counts the messages that one end of a channel takes and refuses, in memory that no peer can fill."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.base.endpoints import BAD_KEYS
from spreeze_zmq.base.errors import WireError

log = logging.getLogger("spreeze")

#: Refusals, and senders with a kind each, that are counted apart; all later ones are counted together. Two
#: thousand processes send four kinds.
MOST_REFUSALS, MOST_SENDERS = 16, 8192
OTHERS = "others"
#: Words of refusals that are no mistake of the sender, a message that became too old: counted apart from the
#: mistakes, which they neither hide nor join.
NO_MISTAKES = ("stale",)
#: Characters kept of an example.
LONGEST_EXAMPLE = 240
#: The first refusal of a kind is logged at once, later ones at most this often.
LOG_INTERVAL_S = 60.0


@dataclass
class Refusal:
    """Messages of one sender and kind that were refused for the same reason.

    Attributes:
        first: what came and what was expected, in the first message.
        count: number of messages.
        logged_s: time of the last log line.
    """

    first: str
    count: int = 0
    logged_s: float = 0.0


class Refusals:
    """Counts by sender, kind and reason.

    Args:
        place: the name of this end in logs.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._good: Counter[tuple[str, str]] = Counter()
        self._refused: dict[tuple[str, str, str], Refusal] = {}

    def take(self, sender: str, kind: str) -> None:
        """Count a message that this end returns."""
        self._good[self._counted_as(sender, kind)] += 1

    def pass_over(self, sender: str, kind: str) -> None:
        """Count no more a message that came repeated or that a newer one has replaced: nobody judges it."""
        self._good[self._counted_as(sender, kind)] -= 1

    def refuse(self, error: WireError, sender: str = "", kind: str = "", *, taken: bool = False) -> None:
        """Count a refused message and log why; ``taken``: this end has returned it before."""
        if taken:
            self.pass_over(sender, kind)
        key = (sender, kind, error.reason)
        if key not in self._refused and not self._has_room(error.reason):
            key = (OTHERS, "", error.reason if error.reason in NO_MISTAKES else OTHERS)
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

    def _has_room(self, word: str) -> bool:
        """Whether one more refusal for this reason is counted apart."""
        return (
            sum((known in NO_MISTAKES) == (word in NO_MISTAKES) for *_, known in self._refused)
            < MOST_REFUSALS
        )

    def _counted_as(self, sender: str, kind: str) -> tuple[str, str]:
        """The key of a message's counter; shared by all senders after the first ``MOST_SENDERS``."""
        key = (sender, kind)
        return key if key in self._good or len(self._good) < MOST_SENDERS else (OTHERS, kind)

    def rows(self) -> list[dict[str, Any]]:
        """The refusals for a report; ``good`` is the number of taken messages of the same sender and kind, of
        one beyond ``MOST_SENDERS`` that of all such senders.
        """
        return [
            {
                "sender": sender,
                "kind": kind,
                "word": word,
                "count": refusal.count,
                "first": refusal.first,
                "good": max(0, self._good[self._counted_as(sender, kind)]),
            }
            for (sender, kind, word), refusal in self._refused.items()
        ]
