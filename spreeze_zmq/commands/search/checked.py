"""What a search will run, looked at before its first trial: no value is a mistake, and none has no effect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError, TopologyError
from spreeze_zmq.commands.advice import advice, without_effect
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.commands.search.space import Varied
from spreeze_zmq.nodes.listening import need_no_machine
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import Plan


def checked(source: Any, stated: Sequence[str], stop: tuple[str, str], space: Sequence[Varied]) -> list[Plan]:
    """The plan as it is, and that with every key at each of its ends or choices; prints advice about it.

    Args:
        source: of the topology.
        stated: overrides of every run.
        stop: the option that says how every run ends, and the override for that.
        space: what is varied.

    Raises:
        InputError: the topology has a mistake, or does not allow one of the values, or the end of a run; or
            a value has no effect, whatever the other keys are.
    """
    look = FirstLook()
    load = partial(topology.load, source, look=look)
    plans = [load(stated)]
    need_no_machine(plans[0], may_listen=False)
    by, ends = stop
    stated = [*stated, ends]
    try:
        advised = advice(load(stated), look.observations())
    except TopologyError as error:
        raise InputError(f"{by}, by which every run ends: {error.mistakes[0]}") from None
    for varied in space:
        others = [other for other in space if other is not varied]
        for text in varied.tried:
            place, told = f"--over {varied.key}, at {text}", [*stated, f"{varied.key}={text}"]
            try:
                plans.append(load(told))
            except TopologyError as error:
                raise InputError(f"{place}: {error.mistakes[0]}") from None
            line = _why_idle(varied, plans[-1])
            if line and all(_why_idle(varied, plan) for plan in _beside(told, others, load)):
                raise InputError(f"{place}: {line}")
    for line in advised:
        say(f"advice: {line}")
    return plans


def _why_idle(varied: Varied, plan: Plan) -> str:
    """Why a key has no effect in a plan; empty where it has one."""
    return next((line for line in without_effect(plan) if line.startswith(f"{varied.key} ")), "")


def _beside(told: Sequence[str], others: Sequence[Varied], load: Callable[..., Plan]) -> Iterator[Plan]:
    """The plan with each combination of values of other keys that it allows."""
    for texts in itertools.product(*(other.tried for other in others)):
        beside = [f"{other.key}={text}" for other, text in zip(others, texts, strict=True)]
        with suppress(TopologyError):
            yield load([*told, *beside])
