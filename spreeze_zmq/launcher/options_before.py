"""What becomes of the options of a run before in one that goes on from it: those that were set while it
trained, schedules that have come to their end, and what only fresh networks have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import COUNTS, Scheduled, options_of, schedules_in, share_of, show
from spreeze_zmq.broker.notes import turned_in
from spreeze_zmq.plan import moves
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder

if TYPE_CHECKING:
    from spreeze_zmq.launcher.lineage import Origin


def turned_before(plan: Plan, origin: Origin) -> tuple[dict[str, float], list[str]]:
    """The options that were set while the run before trained, as they were at the checkpoint; without those
    that the plan states otherwise than that run's, or the line itself. And a line for each that may not move
    in this one.
    """
    turned = turned_in(RunFolder(origin.run.folder).metrics, origin.t_s)
    kept, lost, there, here = {}, [], _stated(origin.run.plan), _stated(json.loads(plan.to_json()))
    for name, value in turned.items():
        key = _key(name)
        is_set = any(key[: len(each)] == each[: len(key)] for each in origin.set_anew)
        if name in there and there[name] == here.get(name) and not is_set:
            try:
                kept[name] = moves.checked(plan, name, value)
            except InputError as error:
                why = str(error).partition(": ")[2]
                lost.append(f"set while the run before trained, and not held: {name} {show(value)}: {why}")
    return kept, lost


def held(turned: Mapping[str, float]) -> Iterator[str]:
    """A line for the options that stay as they were set."""
    if turned:
        values = ", ".join(f"{'.'.join(_key(name))} = {value:g}" for name, value in turned.items())
        yield f"set while the run before trained, and held: {values} (--set KEY=VALUE ends that)"


def without_effect(plan: Plan, origin: Origin, turned: Collection[str]) -> Iterator[str]:
    """A line for each option whose value does not do what it says in a run that goes on; of those that are
    ``turned`` another one says what holds.
    """
    yield from _at_their_end(plan, origin, turned)
    yield from _of_fresh_networks(plan, origin)


def _at_their_end(plan: Plan, origin: Origin, turned: Collection[str]) -> Iterator[str]:
    """A line for each option with a schedule over the whole run that the run before has gone through: here
    it stays where that ended, unless it was ``turned`` to a number since.
    """
    stop, reached = origin.run.plan["run"].get("stop") or {}, {**origin.counts, "minutes": origin.t_s / 60}
    limits = {name: stop[name] for name in COUNTS if type(stop.get(name)) in (int, float) and stop[name] > 0}
    if share_of(limits, reached) < 1.0:
        return
    there, here = _stated(origin.run.plan), _stated(json.loads(plan.to_json()))
    for name, value in here.items():
        found = filter(None, map(Scheduled.of, schedules_in(value)))
        ends = [each.last for each in found if "run" in each.over and each.first != each.last]
        if ends and there.get(name) == value and name not in turned:
            at = " and ".join(f"{end:g}" for end in dict.fromkeys(ends))
            yield (
                f"algorithm.{name} stays at {at}, where its schedule over the run before has ended "
                f"(--set algorithm.{name}=NUMBER, or another schedule, moves it)"
            )


def _of_fresh_networks(plan: Plan, origin: Origin) -> Iterator[str]:
    """A line for each option that is stated otherwise than before, and has no effect on trained networks."""
    before = origin.run.plan["algorithm"]
    for option in options_of(algorithms.get(plan.run.algorithm).Options):
        old, new = before.get(option.name, option.default), plan.algorithm[option.name]
        if option.initial and old != new:
            yield (
                f"algorithm.{option.name} = {show(new)} has no effect: it is of fresh networks, and those of "
                f"the run before, which began with {show(old)}, go on"
            )


def _key(name: str) -> tuple[str, str]:
    """The key of a topology that states an option which may move."""
    return ("balance" if name == moves.REPLAY_RATIO else "algorithm"), name


def _stated(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run.json that may be set, as its topology states them: before a measured batch size
    has scaled any.
    """
    scaling = plan["measured"].get("scaling")
    scaled = scaling.get("options") if isinstance(scaling, Mapping) else None
    stated = {
        name: option.get("stated")
        for name, option in (scaled.items() if isinstance(scaled, Mapping) else ())
        if isinstance(option, Mapping)
    }
    ratio = {name: plan["balance"][name] for name in (moves.REPLAY_RATIO,) if name in plan["balance"]}
    return {**plan["algorithm"], **stated, **ratio}
