"""What a search will run, before its first trial: no value is a mistake, and no key is without an effect."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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

#: Combinations of values of other keys that are looked at for one key: each takes some ten milliseconds.
MOST_COMBINED = 64


def checked(source: Any, stated: Sequence[str], stop: tuple[str, str], space: Sequence[Varied]) -> list[Plan]:
    """The plan as it is, and that with every key at each of its ends or choices; prints advice about it.

    Args:
        source: of the topology.
        stated: overrides of every run.
        stop: the option that says how every run ends, and the override for that.
        space: what is varied.

    Raises:
        InputError: the topology has a mistake, or does not allow one of the values, or the end of a run; or
            a key has no effect at any of its values, whatever the other keys are.
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

    def told(words: Sequence[str]) -> Plan:
        return load([*stated, *words])

    for varied in space:
        tried = []
        for text in varied.tried:
            try:
                tried.append(told([f"{varied.key}={text}"]))
            except TopologyError as error:
                raise InputError(f"--over {varied.key}, at {text}: {error.mistakes[0]}") from None
        others = [other for other in space if other is not varied]
        if not _has_effect(varied, tried) and not _may_beside(varied, others, told):
            why = next(filter(None, (_why_idle(varied, plan) for plan in tried)))
            raise InputError(f"--over {varied.key}: trials would differ by chance alone: {why}")
        plans += tried
    for line in advised:
        say(f"advice: {line}")
    return plans


def _why_idle(varied: Varied, plan: Plan) -> str:
    """Why a key has no effect in a plan; empty where it has one."""
    lines = without_effect(plan, defaults=True)
    return next((line for line in lines if line.startswith(f"{varied.key} ")), "")


def _has_effect(varied: Varied, plans: Sequence[Plan]) -> bool:
    """Whether one of the plans, which differ in a key alone, is another run than those where that is idle."""
    same = [replace(plan, replaced=()).to_json() for plan in plans]
    idle = [bool(_why_idle(varied, plan)) for plan in plans]
    void = [plan for plan, is_idle in zip(same, idle, strict=True) if is_idle]
    return any(plan not in void for plan in same)


def _may_beside(varied: Varied, others: Sequence[Varied], load: Callable[[Sequence[str]], Plan]) -> bool:
    """Whether a key has an effect beside a value of another key, or beside a combination of values of all
    others; it is taken to have one where these are too many to look at.
    """
    each = [[f"{other.key}={text}" for text in other.tried] for other in others]
    alone = [(word,) for words in each for word in words]
    if any(_has_effect(varied, _allowed(varied, words, load)) for words in alone):
        return True
    if math.prod(map(len, each)) > MOST_COMBINED:
        return True
    return any(_has_effect(varied, _allowed(varied, words, load)) for words in itertools.product(*each))


def _allowed(varied: Varied, beside: Sequence[str], load: Callable[[Sequence[str]], Plan]) -> list[Plan]:
    """The plan of each value of a key that is allowed beside those of others."""
    plans = []
    for text in varied.tried:
        with suppress(TopologyError):
            plans.append(load([f"{varied.key}={text}", *beside]))
    return plans
