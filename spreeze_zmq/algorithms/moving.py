"""The options of an algorithm that move along a run, and those that differ by network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from spreeze_zmq.algorithms.options import TrainingOptions
from spreeze_zmq.base.schema import Scheduled, options_of, schedules_in, suggestion
from spreeze_zmq.nn import torch

OptionsT = TypeVar("OptionsT")

#: The count that is the share of the whole run.
RUN = "run"


class MovingOptions:
    """Options as an algorithm reads them: a schedule is a 0-d float32 tensor there, moved in place, which a
    recorded update reads at each replay.

    Args:
        stated: an instance of the algorithm's ``Options``, which holds schedules as tables.
        device: where the tensors go.

    Attributes:
        stated: as above.
        live: a copy of it with tensors in place of schedules; the same object where there are none.
        moves: whether any option is a schedule, of some network or all.
        reached: count of the run -> the most of it that has been reached.
    """

    def __init__(self, stated: Any, device: torch.device | str = "cpu") -> None:
        self._device = device
        self._numbers: dict[str, tuple[Scheduled, torch.Tensor]] = {}
        self.reached: dict[str, float] = {}
        self._begun: dict[tuple[Any, ...], float] = {}
        self.stated = self.live = stated
        self.restate(stated)

    def restate(self, stated: Any) -> None:
        """Take over other options; the tensors stay, and so does a copy that a recorded update reads."""
        before = self.live if self.live is not self.stated else None
        self.stated = self.live = stated
        self.moves = any(True for _, value in _scheduled(stated) for _ in schedules_in(value))
        found = {name: Scheduled.of(value) for name, value in _scheduled(stated)}
        if any(found.values()):
            self.live = copy.copy(stated) if before is None else before
            for item in dataclasses.fields(stated):
                object.__setattr__(self.live, item.name, getattr(stated, item.name))
        for name, scheduled in found.items():
            if scheduled is not None:
                place = (
                    self._numbers[name][1] if name in self._numbers else torch.zeros((), device=self._device)
                )
                self._numbers[name] = scheduled, place
                object.__setattr__(self.live, name, place)  # of a frozen dataclass
        self.follow({})

    def follow(self, reached: Mapping[str, float]) -> None:
        """Move every number to where the run is; no count goes back."""
        for name, count in reached.items():
            self.reached[name] = max(count, self.reached.get(name, 0.0))
        for scheduled, place in self._numbers.values():
            place.fill_(self.value(scheduled))

    def value(self, scheduled: Scheduled) -> float:
        """The value of a schedule where the run is."""
        return scheduled.value(self._progress(scheduled))

    def _progress(self, scheduled: Scheduled) -> float:
        begun = self._begun.get(_key(scheduled), 0.0) if RUN in scheduled.over else 0.0
        return max(begun, scheduled.progress(self.reached))

    def shares(self) -> list[list[Any]]:
        """Of each schedule over the run: its first and last value, its shape, and how far it is."""
        return [
            [*_key(scheduled), self._progress(scheduled)]
            for _, value in _scheduled(self.stated)
            for scheduled in map(Scheduled.of, schedules_in(value))
            if scheduled is not None and RUN in scheduled.over
        ]

    def go_on(self, shares: Iterable[Sequence[Any]]) -> None:
        """Go on from the :meth:`shares` of a run before: a schedule over the run that was stated just so does
        not go back, although this run's end is later; any other is where this run is.
        """
        self._begun |= {tuple(key): share for *key, share in shares}

    def values(self) -> dict[str, float]:
        """The numbers that move, as they are."""
        return {name: self.value(scheduled) for name, (scheduled, _) in self._numbers.items()}


def _key(scheduled: Scheduled) -> tuple[Any, ...]:
    return scheduled.first, scheduled.last, scheduled.shape


def _scheduled(stated: Any) -> Iterator[tuple[str, Any]]:
    """The options that may be schedules, and their values."""
    for declared in options_of(type(stated)):
        if declared.schedule:
            yield declared.name, getattr(stated, declared.name)


def tables_by_network(stated: Any) -> dict[str, Mapping[str, Any]]:
    """The options whose values are tables by network."""
    names = (declared.name for declared in options_of(type(stated)) if declared.by_network)
    values = {name: getattr(stated, name) for name in names}
    return {name: value for name, value in values.items() if is_by_network(value)}


def is_by_network(value: Any) -> bool:
    """Whether an option's value is a table by network."""
    return isinstance(value, Mapping) and Scheduled.of(value) is None


def of_network(stated: Any, name: str, part: str, network: str) -> Any:
    """An option's value for a network: its own, that of its part, or the option's default.

    Args:
        stated: the options.
        name: of the option.
        part: ``"critic"`` or ``"policy"``.
        network: one of that part; ``""`` for any that no table names.
    """
    if (table := tables_by_network(stated).get(name)) is None:
        return getattr(stated, name)
    default = _default(type(stated), name)
    if is_by_network(default):
        default = default.get(network, default.get(part, _default(TrainingOptions, name)))
    return table.get(network, table.get(part, default))


def _default(kind: type[Any], name: str) -> Any:
    return next(option.default for option in options_of(kind) if option.name == name)


def problems_of_names(stated: Any, parts: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Networks named by an option that no part has; ``parts`` has the names of the networks of each part that
    is trained.
    """
    known = [*dict.fromkeys([*parts, *(network for networks in parts.values() for network in networks)])]
    for name, table in tables_by_network(stated).items():
        for network in table:
            if network not in known:
                yield f"{name} has a value for {network!r}, expected a network; {suggestion(network, known)}"
