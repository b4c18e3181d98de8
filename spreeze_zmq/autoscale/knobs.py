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
#: From this share of busy cores on, processes are taken to share them.
CROWDED = 0.85
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

    cores_each = 0.0

    def wanted(self, window: Window) -> tuple[int, str]:
        """Samplers that wait for newer policies are never a reason for more of them."""
        count, makes, takes = self.present, window.makes_per_s, window.takes_per_s
        cores = self._see(window)
        short_of_policies = window.short_of_policies > NOTICEABLE
        if window.starved > NOTICEABLE and not short_of_policies and max(makes) > 0:
            lacking = max(0.0, ROOM * takes - sum(makes)) / max(makes)
            grown = self.within(count + min(math.ceil(lacking), self._room(window)))
            why = f"critic_learner starved {window.starved:.0%} of the time, {window.produced_per_s:,.0f} "
            return grown, why + f"samples a second where it could take {takes:,.0f}"
        needed = window.received_per_s if short_of_policies else max(takes, window.received_per_s)
        if self.cores_each >= SLEEPS and window.busy_cores >= CROWDED * window.cores:
            # What each would make if it need not share its core with those that leave.
            makes = [per_s / min(1.0, cores) for per_s in makes]
        sums = list(accumulate(makes))
        fewer = next((n for n in range(self.minimum, count) if sums[n - 1] >= SPARE * needed), count)
        waited = f"blocked {window.blocked:.0%} of the time"
        if window.short_of_policies > window.blocked:
            waited = f"waiting for newer policies {window.short_of_policies:.0%} of the time"
        can = f"{fewer} can produce {sums[fewer - 1]:,.0f} samples a second"
        why = f"{waited}, {can} where {window.received_per_s:,.0f} are taken"
        return fewer if fewer <= WORTHWHILE * count else count, why

    def wanted_to_begin(self, window: Window) -> tuple[int, str]:
        """Before anything is trained nobody knows what learners take: samplers that sleep become as many as
        are allowed, so that the learners' first samples come soon. Others have the cores already.
        """
        cores = self._see(window)
        if window.short_of_policies > NOTICEABLE or not 0 < self.cores_each < SLEEPS:
            return self.present, ""
        why = f"nothing is trained yet, and a sampler uses {cores:.2f} of a core for "
        return self.maximum, why + f"{max(window.makes_per_s):,.0f} samples a second"

    def _see(self, window: Window) -> float:
        """Cores that a working sampler uses; where cores are short, fewer than it could, so that the most
        that was ever seen tells who sleeps.
        """
        cores = total(window.samplers, "cpu") / max(total(window.samplers, "busy"), 0.01)
        self.cores_each = max(self.cores_each, cores)
        return max(cores, 0.01)

    def _room(self, window: Window) -> int:
        """How many more the cores are there for: a last one where more than ``GAIN`` of them is free."""
        free = window.cores - sum(total(group, "cpu") for group in window.groups)
        if self.cores_each < SLEEPS:
            return self.maximum
        return math.ceil(free / self.cores_each) if free > GAIN * window.cores else 0


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
