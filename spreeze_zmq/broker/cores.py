"""Who holds the cores that a run may use: its processes, other programs, nobody."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from spreeze_zmq.base.machine import core_time
from spreeze_zmq.base.usage import busy_cpu_s
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, PART_OF, SAMPLER, VISUALIZER

#: Time over which the CPUs of other programs are counted: reports come twice a second.
INTERVAL_S = 5.0
#: Least time of training whose shares are told.
LEAST_S = 5.0


@dataclass(frozen=True)
class CoreShares:
    """Shares of the time of all cores from the first update to the end of training; together they are 1.

    Attributes:
        products: matrix products and convolutions of updates, at the rate that the learners measured alone.
        updates: all other CPU time of the learners: memory, other operations, Python, messages.
        sampling: CPU time of the samplers on this machine.
        evaluation: of the evaluator and the visualizer.
        messages: of the broker and all other parts of the run.
        others: of other programs.
        idle: of nobody.
    """

    products: float
    updates: float
    sampling: float
    evaluation: float
    messages: float
    others: float
    idle: float


@dataclass(frozen=True)
class _Mark:
    """Cumulative figures at one moment, in seconds."""

    t_s: float
    busy_s: float
    products_s: float
    by_role: Counter[str]


class Cores:
    """The CPU time of a run's processes beside that of the cores that its launcher may use.

    Attributes:
        cpu_s: CPU seconds of the processes on these cores so far, by role, as they report them.
    """

    def __init__(self) -> None:
        self.cpu_s: Counter[str] = Counter()
        self._num_cpus = core_time(os.getppid())
        self._before: _Mark | None = None
        self._first: _Mark | None = None
        self._last: _Mark | None = None
        self._row: dict[str, float] = {}
        self._busy_s = 0.0

    def _mark(self, now_s: float, products_s: float = 0.0) -> _Mark:
        self._busy_s = busy_cpu_s(os.getppid())
        return _Mark(now_s, self._busy_s, products_s, self.cpu_s.copy())

    def state(self) -> dict[str, Any]:
        """JSON-able state that :meth:`shares` count on from."""
        return {"cpu_s": dict(self.cpu_s), "first": _plain(self._first), "last": _plain(self._last)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`, on the same machine."""
        self.cpu_s = Counter(state["cpu_s"])
        self._first, self._last = (_mark_of(state.get(name)) for name in ("first", "last"))
        if self._first is not None:
            self._busy_s = busy_cpu_s(os.getppid())

    def stood_still(self) -> None:
        """Leave out a time that the run's clock leaves out: other programs went on in it. To be called at its
        end, before anything else here.
        """
        self._before = None
        if self._first is not None and self._last is None:
            meanwhile_s = busy_cpu_s(os.getppid()) - self._busy_s
            self._first = replace(self._first, busy_s=self._first.busy_s + meanwhile_s)

    def row(self, now_s: float) -> dict[str, float]:
        """``cpus`` and, on average over the last ``INTERVAL_S``, ``cpus_idle`` and ``cpus_of_others``; empty
        at first.
        """
        before, now = self._before, self._mark(now_s)
        if before is None or now_s - before.t_s >= INTERVAL_S:
            if before is not None:
                span_s, busy_s = now_s - before.t_s, now.busy_s - before.busy_s
                others = (busy_s - (now.by_role - before.by_role).total()) / span_s
                idle = self._num_cpus - busy_s / span_s
                self._row = {"cpus": self._num_cpus}
                self._row |= {"cpus_of_others": max(0.0, others), "cpus_idle": max(0.0, idle)}
            self._before = now
        return self._row

    def begin(self, now_s: float, products_s: float) -> None:
        """Note the first update; later calls change nothing.

        Args:
            now_s: seconds since the run began.
            products_s: core-seconds of the products of all updates so far.
        """
        if self._first is None:
            self._first = self._mark(now_s, products_s)

    def end(self, now_s: float, products_s: float) -> None:
        """Note the end of training; arguments as of :meth:`begin`."""
        self._last = self._mark(now_s, products_s)

    def shares(self, now_s: float, products_s: float) -> CoreShares | None:
        """The shares from :meth:`begin`, whose arguments these are, until now or :meth:`end`; None before
        ``LEAST_S``.
        """
        first, last = self._first, self._last or self._mark(now_s, products_s)
        if first is None or last.t_s - first.t_s < LEAST_S:
            return None
        total_s = self._num_cpus * (last.t_s - first.t_s)
        spent, busy_s = last.by_role - first.by_role, last.busy_s - first.busy_s
        learners_s = sum(spent[role] for role in PART_OF)
        products_s = min(last.products_s - first.products_s, learners_s)
        sampling_s, evaluation_s = spent[SAMPLER], spent[EVALUATOR] + spent[VISUALIZER]
        seconds = CoreShares(
            products=products_s,
            updates=learners_s - products_s,
            sampling=sampling_s,
            evaluation=evaluation_s,
            messages=spent.total() - learners_s - sampling_s - evaluation_s,
            others=max(0.0, busy_s - spent.total()),
            idle=max(0.0, total_s - max(busy_s, spent.total())),
        )
        whole = sum(asdict(seconds).values())
        return CoreShares(**{name: value / whole for name, value in asdict(seconds).items()})


def _plain(mark: _Mark | None) -> dict[str, Any] | None:
    return None if mark is None else {**vars(mark), "by_role": dict(mark.by_role)}


def _mark_of(found: Mapping[str, Any] | None) -> _Mark | None:
    return None if found is None else _Mark(**{**found, "by_role": Counter(found["by_role"])})


def devices_here(plan: Plan, learners: Collection[str]) -> dict[str, str]:
    """The device of each learner's process on this machine, by name."""
    return {
        name: plan.components[role].options.get("device", "cpu")
        for name in sorted(learners)
        if (role := name.rpartition("-")[0]) not in plan.placement
    }
