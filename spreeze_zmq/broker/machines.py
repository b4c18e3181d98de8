"""The machines that have joined a run, as the launcher tells of them, and what their processes make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spreeze_zmq.broker.figures import ProcessRecord, Rates
from spreeze_zmq.broker.rows import inner
from spreeze_zmq.plan.roles import MOST_PROCESSES, SAMPLER

#: The figures that the launcher tells.
FIGURES = (
    *("host", "cores", "busy", "memory_bytes", "sent_bytes_per_s", "received_bytes_per_s"),
    *("most", "samplers"),
)
#: Longest text about the processes of a machine: a status has a row for each machine.
LONGEST = 80
_NUMBERED = re.compile(r"(.+)-([0-9]{1,6})")


@dataclass
class Machine:
    """A machine of the run beside the launcher's own.

    Attributes:
        host: what it calls itself.
        cores: that the run may use.
        busy: cores that are busy, with this run or with other programs.
        memory_bytes: in use.
        sent_bytes_per_s: by its processes over the network to the head.
        received_bytes_per_s: by them.
        most: the most samplers that may run there.
        samplers: how many shall run there.
        why: the broker's last change of that number, in words; empty where there was none.
        runs: the names of its processes, in few words.
        env_steps_per_s: that these push.
        blocked: mean share of their time in which nobody took what they had, 0 to 1.
        processes: their names.
    """

    host: str
    cores: int
    busy: float
    memory_bytes: int
    sent_bytes_per_s: float
    received_bytes_per_s: float
    most: int
    runs: str = ""
    samplers: int = 0
    why: str = ""
    env_steps_per_s: float = 0.0
    blocked: float = 0.0
    processes: tuple[str, ...] = inner(tuple)


class Machines:
    """Those that are part of the run now, by the names that the head gave them."""

    def __init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self._rates = Rates()

    def take(self, fields: Mapping[str, Any]) -> None:
        """Record what the launcher tells of a machine."""
        former = self._machines.get(fields["node"])
        for name in () if former is None else former.processes:
            if fields["gone"] or name not in fields["processes"]:
                self._rates.forget(name)
        if fields["gone"]:
            self._machines.pop(fields["node"], None)
            return
        self._machines[fields["node"]] = Machine(
            **{name: fields[name] for name in FIGURES},
            runs=in_words(fields["processes"]),
            why="" if former is None else former.why,
            processes=tuple(fields["processes"]),
        )

    def change(self, node: str, count: int, why: str) -> str:
        """Note that a machine shall run another number of samplers, and why; returns that in one line."""
        machine = self._machines[node]
        machine.why = f"{machine.samplers} -> {count} there; {why}"
        machine.samplers = count
        return f"{machine.host} ({node}): {machine.why}"

    @property
    def present(self) -> dict[str, Machine]:
        """Those that are part of the run."""
        return dict(self._machines)

    def have(self, name: str) -> bool:
        """Whether a process runs on one of them."""
        return any(name in machine.processes for machine in self._machines.values())

    def rows(self, processes: Mapping[str, ProcessRecord], now_s: float) -> dict[str, dict[str, Machine]]:
        """``machines``: a row for each; nothing where there are none."""
        for machine in self._machines.values():
            there = {name: processes[name] for name in machine.processes if name in processes}
            for name, one in there.items():  # each for itself: one may start again at 0
                self._rates.add(name, one.pushed, now_s)
            machine.env_steps_per_s = sum(self._rates.rate(name, now_s) for name in there)
            blocked = [one.blocked for one in there.values() if one.role == SAMPLER and not one.gone]
            machine.blocked = sum(blocked) / max(1, len(blocked))
        return {"machines": self.present} if self._machines else {}


def in_words(names: Iterable[str], longest: int = LONGEST) -> str:
    """``evaluator-0, sampler-8 to sampler-15``; of over ``longest`` characters the first and "..."."""
    runs: list[list[tuple[str, int]]] = []
    found = filter(None, map(_NUMBERED.fullmatch, names))
    for role, index in sorted((match[1], int(match[2])) for match in found):
        if runs and runs[-1][-1] == (role, index - 1):
            runs[-1].append((role, index))
        else:
            runs.append([(role, index)])
    ends = [list(dict.fromkeys(f"{role}-{index}" for role, index in (run[0], run[-1]))) for run in runs]
    text = ", ".join(" to ".join(run) for run in ends)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def names_in(words: str) -> set[str]:
    """The names that :func:`in_words` has written, but for those that it has cut off."""
    names: set[str] = set()
    for run in words.removesuffix("...").split(", ")[: -1 if words.endswith("...") else None]:
        first, _, last = run.partition(" to ")
        begin, end = (_NUMBERED.fullmatch(name) for name in (first, last or first))
        if begin and end and int(end[2]) - int(begin[2]) < MOST_PROCESSES:
            names.update(f"{begin[1]}-{index}" for index in range(int(begin[2]), int(end[2]) + 1))
    return names
