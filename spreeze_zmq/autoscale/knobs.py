"""What a run may move while it lives, and to which value the rates of a window would move it.

Each knob only proposes. Whether a value stays is measured (``rule``), so that the arithmetic here may be
simple. Growing must feed learners that starve; shrinking must save what nobody needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from spreeze_zmq.autoscale.windows import Window, mean, total

#: Growing must raise what is trained by this share.
GAIN = 0.08
#: What samplers are grown to can produce this many times what the learners could take.
ROOM = 1.05
#: What is shrunk can still give this many times what is needed; counts shrink by a sixth at least.
SPARE, WORTHWHILE = 1.25, 0.85
#: Samplers that use less of a core than this while they work sleep: free cores are no limit to them.
SLEEPS = 0.5
#: The share that is much: of time that learners starve or samplers wait for policies, of refused samples.
NOTICEABLE = 0.1
#: Learners that starve, or block samplers, for this share of the time have another batch to try.
LARGE = 0.25
#: No batch shrinks below this.
SMALLEST_BATCH = 64


@dataclass
class Knob:
    """A number that may move.

    Attributes:
        present: its value now.
        minimum: the least that the topology allows.
        maximum: the most.
        tried: value -> transitions/s that it trained when it was last measured.
    """

    present: int
    minimum: int
    maximum: int
    tried: dict[int, float] = field(default_factory=dict)
    role = "sampler"
    option = ""
    title = "samplers"

    @property
    def movable(self) -> bool:
        """Whether the topology leaves anything to decide."""
        return self.minimum < self.maximum

    def wanted(self, window: Window) -> tuple[int, str]:
        """The value that the rates ask for, and why, in figures."""
        raise NotImplementedError

    def within(self, value: int) -> int:
        """The nearest value that is allowed."""
        return min(max(value, self.minimum), self.maximum)


class Samplers(Knob):
    """The number of sampler processes: those that make ``ROOM`` times what the learners could take."""

    def wanted(self, window: Window) -> tuple[int, str]:
        """More where the critic-learner starves, but for want of samplers: not where these wait for newer
        policies themselves. Else fewer, where these suffice.
        """
        if window.starved > NOTICEABLE >= window.short_of_policies and max(window.makes_per_s) > 0:
            return self._more(window)
        return self._fewer(window)

    def _more(self, window: Window) -> tuple[int, str]:
        makes, takes = window.makes_per_s, window.takes_per_s
        lacking = max(0.0, ROOM * takes - sum(makes)) / max(makes)
        count = self.within(self.present + min(math.ceil(lacking), self._room(window)))
        starved = f"critic_learner starved {window.starved:.0%} of the time"
        made = f"{window.produced_per_s:,.0f} samples a second where it could take {takes:,.0f}"
        return count, f"{starved}, {made}"

    def _fewer(self, window: Window) -> tuple[int, str]:
        count, taken, waiting = self.present, window.received_per_s, window.blocked + window.short_of_policies
        sums = list(accumulate(window.makes_per_s))
        # That samplers wait is sure; that they hinder each other less when they are fewer is taken for half.
        least = max(self.minimum, math.ceil(count * (1 - waiting) / 2))
        fewer = next((n for n in range(least, count) if sums[n - 1] >= SPARE * taken), count)
        pays = waiting >= NOTICEABLE and fewer <= WORTHWHILE * count
        waited = f"blocked {window.blocked:.0%} of the time"
        if window.short_of_policies > window.blocked:
            waited = f"waiting for newer policies {window.short_of_policies:.0%} of the time"
        can = f"{fewer} can produce {sums[fewer - 1]:,.0f} samples a second where {taken:,.0f} are taken"
        return fewer if pays else count, f"{waited}, {can}"

    def wanted_to_begin(self, window: Window) -> tuple[int, str]:
        """Before anything is trained nobody knows what learners take: samplers that sleep become as many as
        are allowed, so that the learners' first samples come soon. Others have the cores already.
        """
        cores = self._cores_each(window)
        if window.short_of_policies > NOTICEABLE or not 0 < cores < SLEEPS:
            return self.present, ""
        why = f"nothing is trained yet, and a sampler uses {cores:.2f} of a core for "
        return self.maximum, why + f"{max(window.makes_per_s):,.0f} samples a second"

    def _cores_each(self, window: Window) -> float:
        """Cores that a working sampler uses where it need not share them."""
        return total(window.samplers, "cpu") / sum(window.work(spell) for spell in window.samplers)

    def _room(self, window: Window) -> int:
        """How many more the cores are there for: a last one where more than ``GAIN`` of them is free."""
        cores = self._cores_each(window)
        if cores < SLEEPS:
            return self.maximum
        free = window.cores - sum(total(group, "cpu") for group in window.groups)
        return math.ceil(free / cores) if free > GAIN * window.cores else 0


@dataclass
class BatchSize(Knob):
    """Transitions of an update. Learners that starve can afford smaller batches, which are more updates of
    the same samples; where these hold the samplers up it goes back towards the size that was chosen.

    Attributes:
        curve: size -> transitions/s that a critic-learner alone trains on, as measured before the run.
    """

    curve: Mapping[int, float] = field(default_factory=dict)
    role = "critic_learner"
    option = "batch_size"
    title = "batch size"

    def wanted(self, window: Window) -> tuple[int, str]:
        """The smallest size that trains ``SPARE`` times what is fed and keeps the other learners up with the
        critics, or that trains what is made; where none does, the largest that gains anything.
        """
        now, trained = self.present, window.trained_per_s
        alone = window.takes_per_s * window.replay_ratio / self.curve[now]
        sizes = [size for size in sorted(self.curve) if self.minimum <= size <= self.maximum]
        could = {size: alone * self.curve[size] for size in sizes}
        size, why = now, ""
        if window.starved >= LARGE and max(window.blocked, window.short_of_policies) < NOTICEABLE:
            needed = max(SPARE * trained, mean(window.followers, "busy") * could[now])
            size = next((size for size in sizes if size < now and could[size] >= needed), now)
            why = f"critic_learner starved {window.starved:.0%} of the time"
        elif window.blocked >= LARGE and window.starved < NOTICEABLE:
            made = SPARE * window.replay_ratio * sum(window.makes_per_s)
            larger = [size for size in sizes if size > now and could[size] > (1 + GAIN) * trained]
            size = next((size for size in larger if could[size] >= made), max([now, *larger]))
            why = f"samplers blocked {window.blocked:.0%} of the time"
        told = (
            f"{size:,} could train {could[size]:,.0f} transitions a second where {trained:,.0f} are trained"
        )
        return size, f"{why}, {told}"
