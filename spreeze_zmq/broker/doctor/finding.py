"""What the rules return."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

#: An option of the algorithm as a remedy names it.
_OPTION = re.compile(r"algorithm\.(\w+)")


@dataclass(frozen=True)
class Finding:
    """What a rule says of a run, as status, journal and summary.json hold it.

    Attributes:
        name: of the rule.
        seen: the figures, in words.
        why: what they do to the learning.
        remedy: the one thing to try.
        rank: how bad it is: 0 keeps a run from learning at all, 1 makes it learn badly, 2 is worth knowing.
        t_s: when it was named, in seconds since the run's start.
    """

    name: str = field(default="", kw_only=True)
    seen: str
    why: str
    remedy: str = field(metadata={"key": "try"})
    rank: int = 1
    t_s: float = 0.0


def fitting(options: Container[str], *remedies: str) -> str:
    """The first remedy all of whose options of the algorithm it has: one of the user's own may lack any. The
    last one is in words alone.
    """
    return next(remedy for remedy in remedies if all(name in options for name in _OPTION.findall(remedy)))
