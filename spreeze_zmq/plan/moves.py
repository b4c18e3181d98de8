"""The options that a request may change while a run trains, as those who ask and those who obey read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.schema import Option, Unfit, check, did_you_mean, one_of, show
from spreeze_zmq.plan.parts import LearningPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER

REPLAY_RATIO = "replay_ratio"
#: The option that the broker alone moves, where the topology leaves it to be measured.
BATCH = "batch_size"
#: Largest ratio that a request may ask for: what it makes a learner catch up with stays a number.
MOST_RATIO = 10_000.0
_BOUNDS = ("minimum", "above", "maximum")


def movable(options: Iterable[Option]) -> dict[str, dict[str, float]]:
    """Of an algorithm's options those that may move, and the bounds of each."""
    return {
        option.name: {
            name: float(getattr(option, name)) for name in _BOUNDS if getattr(option, name) is not None
        }
        for option in options
        if option.schedule
    }


def moves_of(plan: Plan) -> dict[str, Option]:
    """The options that a request may change in this run, by name; those that nothing may change are why
    :func:`checked` refuses.
    """
    learning = plan.learning
    found = {name: Option(name, "float", **_bounds(learning, name)) for name in learning.movable}
    if not _why_fixed_ratio(plan):
        found[REPLAY_RATIO] = Option(REPLAY_RATIO, "float", above=0.0, maximum=MOST_RATIO)
    return found


def checked(plan: Plan, name: Any, value: Any) -> float:
    """The value of an option that a request asks for.

    Raises:
        InputError: in one line, that there is no such option, that it may not move in this run and which may,
            or the values that it takes.
    """
    moves = moves_of(plan)
    if why_not := _why_none(plan):
        raise InputError(f"set {show(name)}: {why_not}")
    if name not in moves:
        known = name in plan.algorithm or name in vars(plan.balance)
        fixed = _why_fixed_ratio(plan) if name == REPLAY_RATIO else "it may not move while a run trains"
        what = fixed if known else "no option is called so"
        near = "" if known else did_you_mean(str(name), moves)
        raise InputError(
            f"set {show(name)}: {'; '.join(filter(None, (what, near)))}; these may: {one_of(moves)}"
        )
    try:
        return float(check(moves[name], value))
    except Unfit as unfit:
        raise InputError(
            f"set {name}: {unfit.problem}" + (f" ({unfit.hint})" if unfit.hint else "")
        ) from None


def offered(plan: Plan) -> dict[str, dict[str, Any]]:
    """What a request may change in this run: name -> its bounds, and as ``stated`` what the topology says."""
    if _why_none(plan):
        return {}
    return {
        name: {
            **{bound: getattr(option, bound) for bound in _BOUNDS if getattr(option, bound) is not None},
            "stated": stated(plan, name),
        }
        for name, option in moves_of(plan).items()
    }


def followers(plan: Plan, name: str) -> tuple[str, ...]:
    """The roles that follow a change of an option."""
    return (CRITIC_LEARNER,) if name == REPLAY_RATIO else plan.learning.learners


def stated(plan: Plan, name: str) -> Any:
    """The value that the topology gives to an option that may move."""
    return plan.balance.replay_ratio if name == REPLAY_RATIO else plan.algorithm.get(name)


def _bounds(learning: LearningPlan, name: str) -> dict[str, Any]:
    return {bound: value for bound, value in learning.movable[name].items() if bound in _BOUNDS}


def _why_fixed_ratio(plan: Plan) -> str:
    """Why the replay ratio may not move in a run; empty where it may."""
    if plan.offline:
        return "nothing is sampled, so that there is no ratio"
    if plan.learning.on_policy:
        return "an on-policy algorithm trains on each transition for its number of epochs"
    if plan.balance.schedule(plan.components, plan.learning) is not None:
        return (
            'policies are published by count, which follows from it: only balance.mode = "free" lets it move'
        )
    return ""


def _why_none(plan: Plan) -> str:
    """Why nothing may change by request in a run; empty where something may."""
    if plan.balance.in_order:
        return (
            "a run in order gives the same numbers again, and a change at a time of its own would not: "
            'write a schedule, such as learning_rate = { from = 3e-4, to = 3e-5, over = "run" }'
        )
    if plan.groups.count > 1:
        return f"each of the {plan.groups.count} groups has learners of its own, and a request reaches one"
    return ""
