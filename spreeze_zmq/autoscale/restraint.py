"""What keeps changes from swinging: how many there were of late, how long a run rests after one, and what was
measured before it. The numbers of samplers and of environments in each share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Changes while the world stays the same, within so many seconds.
MOST_CHANGES, CHANGES_S = 3, 120.0
#: The first change must be wanted by so many windows in a row, each further one by as many more.
PERSISTENCE = 2
#: Rest after a change, besides the start of a process as many times as ``PAYBACK`` says, doubled with
#: every change of the last ``RECENT_S``.
REST_S, PAYBACK, RECENT_S = 3.0, 2.0, 40.0
#: What was measured is believed so long, and twice as long with each change of late: speeds wander.
BELIEVED_S = 30.0
#: The throughput of one and the same setting changes by this share: the world has changed, not the setting.
NEW_WORLD = 0.3


@dataclass
class Restraint:
    """The changes of a run.

    Attributes:
        start_s: seconds that the start of a sampler takes.
    """

    start_s: float = 1.0
    _changed_s: list[float] = field(default_factory=list)
    _world_s: float = float("-inf")

    def changes(self, now_s: float) -> int:
        """How many were made of late in the present world."""
        return sum(max(self._world_s, now_s - CHANGES_S) <= changed_s for changed_s in self._changed_s)

    def note(self, now_s: float) -> None:
        """A change is made."""
        self._changed_s.append(now_s)

    def begin_anew(self, now_s: float) -> None:
        """The world has changed: what was done before says nothing."""
        self._world_s = now_s

    def allows(self, windows: int, now_s: float) -> bool:
        """Whether a change that so many windows in a row have asked for may be made now."""
        changes = self.changes(now_s)
        wanted_enough = windows >= PERSISTENCE * (1 + changes)
        return wanted_enough and changes < MOST_CHANGES and self.rested(now_s)

    def rested(self, now_s: float) -> bool:
        """Whether the last change is long enough ago."""
        return now_s >= self._rests_until_s(now_s)

    def _rests_until_s(self, now_s: float) -> float:
        recent = sum(now_s - changed_s < RECENT_S for changed_s in self._changed_s)
        if not recent:
            return 0.0
        return self._changed_s[-1] + (REST_S + PAYBACK * self.start_s) * 2.0 ** (recent - 1)


@dataclass
class Memory:
    """What each setting was measured to train, as far as it is believed still.

    Attributes:
        rates: trained transitions/s by setting.
    """

    rates: dict[int, float] = field(default_factory=dict)
    _seen_s: dict[int, float] = field(default_factory=dict)

    def enter(self, setting: int, rate: float, changes: int, now_s: float) -> bool:
        """What it trains now; whether that is so different from before that the world must have changed, and
        everything is forgotten.
        """
        believed_s = BELIEVED_S * 2.0**changes
        self.rates = {of: was for of, was in self.rates.items() if now_s - self._seen_s[of] <= believed_s}
        known = self.rates.get(setting)
        anew = known is not None and abs(rate - known) > NEW_WORLD * known
        if anew:
            self.rates, known = {}, None
        self.rates[setting] = rate if known is None else 0.7 * known + 0.3 * rate
        self._seen_s[setting] = now_s
        return anew

    def best(self) -> int:
        """The setting that trained most."""
        return max(self.rates, key=lambda setting: self.rates[setting])


@dataclass
class Wish:
    """A change that several windows in a row agree on."""

    _wanted: int = 0
    _windows: int = 0

    def hear(self, present: int, wanted: int) -> tuple[int, int]:
        """The change that all of the last windows agree on, the least of them, and how many they are."""
        agreed = self._windows > 0 and (self._wanted - present) * (wanted - present) > 0
        least = min if wanted > present else max
        self._wanted = least(self._wanted, wanted) if agreed else wanted
        self._windows = self._windows + 1 if agreed else 1
        return self._wanted, self._windows

    def forget(self) -> None:
        """It has been fulfilled."""
        self._windows = 0
