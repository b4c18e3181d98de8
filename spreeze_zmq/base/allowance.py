"""How often others may have something done."""

from __future__ import annotations


class Allowance:
    """So often at once, and more often as time passes.

    Args:
        at_once: how often at one time.
        per_s: how much of that comes back in a second.
    """

    def __init__(self, at_once: float, per_s: float) -> None:
        self._at_once, self._per_s = at_once, per_s
        self._left, self._looked_s = at_once, 0.0

    def takes(self, now_s: float) -> bool:
        """Whether it may be done once more at this time, which counts."""
        back = self._per_s * max(0.0, now_s - self._looked_s)
        self._left, self._looked_s = min(self._at_once, self._left + back), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
