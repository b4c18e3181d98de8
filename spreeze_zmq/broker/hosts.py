"""The machines on which the broker can have more or fewer samplers, and how a number of them is spread."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: The launcher's own machine; others have the name that the head gave them.
HERE = ""
#: Samplers that somebody has started by hand: the launcher can have no more or fewer of them.
BY_HAND = "?"
#: From this share of busy cores on, processes compete for cores.
CROWDED = 0.85


@dataclass(frozen=True)
class Host:
    """A machine of the run over a window of time.

    Attributes:
        cores: that the run may use; a quota may give it a part of one.
        busy_cores: how many of them were busy, with this run or with other programs.
        name: ``HERE`` for the launcher's own.
        samplers: how many the launcher keeps there.
        minimum: the fewest that it may keep there.
        maximum: the most.
        makes_per_s: samples/s of which one sampler there is capable; 0 where that is not known.
        sampler_cores: those that samplers may run on, where learners have cores of their own.
    """

    cores: float
    busy_cores: float
    name: str = HERE
    samplers: int = 0
    minimum: int = 0
    maximum: int = sys.maxsize
    makes_per_s: float = 0.0
    sampler_cores: float = math.inf

    @property
    def is_crowded(self) -> bool:
        """Whether its processes compete for cores."""
        return self.busy_cores >= CROWDED * self.cores


def first_to_keep(hosts: Sequence[Host]) -> list[Host]:
    """The machines, those first whose samplers make most; one that has made nothing yet counts as the best.
    The launcher's own is the last one while it is crowded, since its samplers take cores from the learners.
    """
    return sorted(
        hosts, key=lambda host: (host.name == HERE and host.is_crowded, -(host.makes_per_s or math.inf))
    )


def spread(total: int, hosts: Sequence[Host], rooms: Mapping[str, float]) -> dict[str, int]:
    """How many samplers each machine has, of ``total``: as few other than today as that takes.

    Args:
        total: the new number; it may be out of reach.
        hosts: the machines, by :func:`first_to_keep`: the last one is the first to lose.
        rooms: name -> how many more the free cores there allow; whoever has the fewest for its cores gets one
            first, and those that have no room only what the others cannot take.
    """
    counts = {host.name: host.samplers for host in hosts}
    for host in _losers(sum(counts.values()) - total, hosts):
        counts[host.name] -= 1
    for room in (rooms, {host.name: math.inf for host in hosts}):
        while sum(counts.values()) < total:
            able = [
                host
                for host in hosts
                if counts[host.name] < min(host.maximum, host.samplers + room[host.name])
            ]
            if not able:
                break
            counts[min(able, key=lambda host: (counts[host.name] + 1) / host.cores).name] += 1
    return counts


def _losers(count: int, hosts: Sequence[Host]) -> Iterator[Host]:
    """The machine of each of ``count`` samplers that go."""
    for host in reversed(hosts):
        for _ in range(min(max(count, 0), host.samplers - host.minimum)):
            count -= 1
            yield host
