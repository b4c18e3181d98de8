"""One finding: what was seen, why it matters, and the one thing to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spreeze_zmq.plan.status import Found


@dataclass(frozen=True)
class Finding:
    """What a rule says of a run.

    Attributes:
        name: of the rule.
        seen: the figures, in words.
        why: what they do to the learning.
        remedy: the one thing to try.
        rank: how bad it is: 0 keeps a run from learning at all, 1 makes it learn badly, 2 is worth knowing.
    """

    name: str
    seen: str
    why: str
    remedy: str
    rank: int = 1

    def row(self, t_s: float) -> Found:
        """As status, journal and summary.json hold it, named ``t_s`` seconds after the run's start."""
        return {
            "name": self.name,
            "seen": self.seen,
            "why": self.why,
            "try": self.remedy,
            "rank": self.rank,
            "t_s": round(t_s, 1),
        }
