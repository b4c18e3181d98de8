"""Which processes have rows of their own where a run has very many, and the sums of those that have none.

A status must fit in a header, and is sent to everybody twice a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.broker.figures import ProcessRecord, Workers, worker_rows
from spreeze_zmq.broker.machines import in_words, names_in
from spreeze_zmq.broker.problems import SILENT_S

#: Most rows of a status, unless the launcher's own processes are more.
MOST_SHOWN = 50
#: Most characters of the names of a role's processes without rows.
MOST_NAMES = 8000
#: The lists of a status, whose texts may be long.
LISTS = ("findings", "refusals", "went_back", "failures")


@dataclass
class Others(Workers):
    """The processes of one role without rows of their own; ``produced_per_s``: transitions that they push;
    ``ready``: the names of those that are ready and not silent, as ``in_words`` has them.
    """

    produced_per_s: float
    silent: int
    waiting: int
    ready: str


def shown(processes: Mapping[str, ProcessRecord], always: Collection[str]) -> dict[str, ProcessRecord]:
    """The processes with rows of their own, in their order.

    Args:
        processes: the living ones.
        always: names of those that always have one. The rest of ``MOST_SHOWN`` are the worst others: silent
            first, then those that are not ready, then those that wait for a peer.
    """
    if len(processes) <= MOST_SHOWN:
        return dict(processes)
    worst = sorted(
        (name for name in processes if name not in always), key=lambda name: _rank(processes[name])
    )
    num_always = len(processes) - len(worst)
    chosen = {*always, *worst[: max(0, MOST_SHOWN - num_always)]}
    return {name: one for name, one in processes.items() if name in chosen}


def others(processes: Mapping[str, ProcessRecord], rows: Collection[str]) -> dict[str, dict[str, Others]]:
    """``others``: the sums by role of the processes without rows; nothing where all have one."""
    left = {name: one for name, one in processes.items() if name not in rows}
    if not left:
        return {}
    sums: dict[str, Others] = {}
    for role, workers in worker_rows(left.values()).items():
        own = {name: one for name, one in left.items() if one.role == role}
        sums[role] = Others(
            **vars(workers),
            produced_per_s=sum(one.produced_per_s for one in own.values()),
            silent=sum(one.silent_s > SILENT_S for one in own.values()),
            waiting=sum(bool(one.waiting_for) for one in own.values()),
            ready=in_words((name for name in own if _rank(own[name]) > 1), MOST_NAMES),
        )
    return {"others": sums}


def ready_ones(status: Mapping[str, Any]) -> set[str]:
    """The processes without rows of their own that are ready, by a status."""
    words = [row.get("ready") for row in status.get("others", {}).values()]
    return set().union(*(names_in(each) for each in words if isinstance(each, str)))


def smaller(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A status, then with one row in each list, then without rows of processes, for one that does not fit."""
    yield dict(status)
    short = {name: rows[:1] for name in LISTS if (rows := status.get(name))}
    yield {**status, **short}
    yield {**status, **short, "processes": {}}


def _rank(process: ProcessRecord) -> int:
    """0 for the worst."""
    if process.silent_s > SILENT_S:
        return 0
    return 3 if process.ready and not process.waiting_for else 1 + process.ready
