"""The numbers that a live run may change, and the value of each that a window's rates call for.

A knob only proposes; ``rule`` measures whether the value pays. Growing must feed learners that starve,
shrinking must save processes that nobody needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from spreeze_zmq.base.rates import rate
from spreeze_zmq.broker.hosts import BY_HAND, HERE, spread
from spreeze_zmq.broker.window import LARGE, NOTICEABLE, Window, mean, total

#: Growing must raise the trained transitions/s by this share, shrinking may cost the other one.
GAIN, LOSS = 0.08, 0.03
#: A smaller value must still give this many times what is needed.
SPARE = 1 + LARGE
#: A sampler that uses a smaller part of a core while it works sleeps: free cores do not limit the count.
SLEEPS = 0.5


@dataclass
class Knob:
    """A number that may change.

    Attributes:
        present: the current value.
        minimum: the smallest value that the topology allows.
        maximum: the largest one.
        tried: value -> transitions/s trained on when it was last measured.
        role: the components that it belongs to.
        option: their option that it sets; empty for the number of processes.
        title: its name in reasons.
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
        """Whether the topology allows more than one value."""
        return self.minimum < self.maximum

    def wanted(self, window: Window) -> tuple[int, str]:
        """The value that the rates call for, and why, in figures."""
        raise NotImplementedError

    def within(self, value: int) -> int:
        """The nearest allowed value."""
        return min(max(value, self.minimum), self.maximum)


@dataclass
class Samplers(Knob):
    """The number of sampler processes, on all machines: just enough to produce what the learners could take.

    Attributes:
        by_hand: how many of them somebody has started by hand.
    """

    by_hand: int = 0

    def look(self, window: Window) -> None:
        """Take over the present number and its bounds from the machines; who was started by hand stays."""
        self.by_hand = sum(spell.host == BY_HAND for spell in window.samplers)
        self.present = self.by_hand + sum(host.samplers for host in window.hosts)
        self.minimum = max(1, self.by_hand + sum(host.minimum for host in window.hosts))
        self.maximum = self.by_hand + sum(host.maximum for host in window.hosts)

    def spread(self, count: int, window: Window) -> dict[str, int]:
        """How many of ``count`` samplers each machine has."""
        return spread(count - self.by_hand, window.hosts, self._rooms(window))

    def wanted(self, window: Window) -> tuple[int, str]:
        """More where the critic-learner starves and samplers do not wait for newer policies themselves;
        otherwise fewer, where these suffice.
        """
        if window.starved > NOTICEABLE >= window.short_of_policies and max(window.makes_per_s) > 0:
            return self._more(window)
        return self._fewer(window)

    def _more(self, window: Window) -> tuple[int, str]:
        makes, takes = window.makes_per_s, window.takes_per_s
        lacking = max(0.0, (1 + LOSS) * takes - sum(makes)) / max(makes)
        count = self.within(self.present + min(math.ceil(lacking), sum(self._rooms(window).values())))
        starved = f"critic_learner starved {window.starved:.0%} of the time"
        produced = f"{rate(window.produced_per_s)} samples a second where it could take {rate(takes)}"
        return count, f"{starved}, {produced}"

    def _fewer(self, window: Window) -> tuple[int, str]:
        count, taken, waiting = self.present, window.received_per_s, window.blocked + window.short_of_policies
        sums = list(accumulate(window.makes_per_s))
        sums += sums[-1:] * (count - len(sums))  # a machine that has just joined has made nothing yet
        # Idle samplers can leave for sure. Fewer also hinder each other less, at most by half, it is assumed.
        least = max(self.minimum, math.ceil(count * (1 - waiting) / 2))
        fewer = next((n for n in range(least, count) if sums[n - 1] >= SPARE * taken), count)
        pays = waiting >= NOTICEABLE and SPARE * fewer <= count
        waited = f"blocked {window.blocked:.0%} of the time"
        if window.short_of_policies > window.blocked:
            waited = f"waiting for newer policies {window.short_of_policies:.0%} of the time"
        can = f"{fewer} can produce {rate(sums[fewer - 1])} samples a second where {rate(taken)} are taken"
        return fewer if pays else count, f"{waited}, {can}"

    def wanted_to_begin(self, window: Window) -> tuple[int, str]:
        """The value before anything is trained, when the learners' need is unknown: as many samplers as all
        cores can run if they sleep, so that the first samples come soon. Others use all cores already; those
        that wait for the learners, as while these make their first update, do not show whether they sleep.
        """
        cores, waiting = self._cores_each(window), max(window.blocked, window.short_of_policies)
        if waiting > NOTICEABLE or not 0 < cores < SLEEPS:
            return self.present, ""
        why = f"nothing is trained yet, and a sampler uses {cores:.2f} of a core for "
        more = sum(
            max(0, round(min(host.maximum, host.cores / cores)) - host.samplers) for host in window.hosts
        )
        return self.within(self.present + more), why + f"{rate(max(window.makes_per_s))} samples a second"

    def _cores_each(self, window: Window) -> float:
        """Cores that a sampler uses while it works, if it does not wait for them."""
        return total(window.samplers, "cpu") / sum(window.work(spell) for spell in window.samplers)

    def _rooms(self, window: Window) -> dict[str, int]:
        """How many more samplers the free cores of each machine allow, rounded up; none below ``GAIN`` of all
        its cores.
        """
        cores = self._cores_each(window)
        rooms = {host.name: host.maximum - host.samplers for host in window.hosts}
        for host in window.hosts:
            if cores >= SLEEPS:
                here = [spell for group in window.groups for spell in group if spell.host == HERE]
                free = host.cores - (total(here, "cpu") if host.name == HERE else host.busy_cores)
                own = [spell for spell in window.samplers if spell.host == host.name]
                free = min(free, host.sampler_cores - total(own, "cpu"))
                more = math.ceil(free / cores) if free > GAIN * host.cores else 0
                rooms[host.name] = min(more, rooms[host.name])
        return rooms


@dataclass
class BatchSize(Knob):
    """Transitions per update. Learners that starve can afford smaller batches, and so more updates from the
    same samples; if they then block the samplers, the size grows again towards the one chosen at the start.

    Attributes:
        curve: size -> transitions/s of a critic-learner alone, as measured before the run.
    """

    curve: Mapping[int, float] = field(default_factory=dict)
    role = "critic_learner"
    option = "batch_size"
    title = "batch size"

    def wanted(self, window: Window) -> tuple[int, str]:
        """Where the critic-learner starves, the smallest size that trains ``SPARE`` times today's transitions
        and lets the other learners keep up. Where it blocks the samplers, the smallest larger size that
        trains ``SPARE`` times what they can produce, or else the largest one that gains anything.
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
            needed = SPARE * window.replay_ratio * sum(window.makes_per_s)
            larger = [size for size in sizes if size > now and could[size] > (1 + GAIN) * trained]
            size = next((size for size in larger if could[size] >= needed), max([now, *larger]))
            why = f"samplers blocked {window.blocked:.0%} of the time"
        expected = f"{size:,} could train {rate(could[size])} transitions a second"
        return size, f"{why}, {expected} where {rate(trained)} are trained"
