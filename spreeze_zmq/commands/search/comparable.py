"""Whether the scores of a search compare: values that change what a return is of would win by that alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.scored import episode_steps, rewarded_by
from spreeze_zmq.commands.search.space import Varied
from spreeze_zmq.launcher.texts import not_evaluated
from spreeze_zmq.plan.plan import Plan


def check_scores(plans: Sequence[Plan], space: Sequence[Varied]) -> None:
    """Check that all runs are scored in one task, and print a line where only the environment's code knows.

    Args:
        plans: that of the topology as it is, then those at ``tried`` of each of ``space``, in order.
        space: what is varied.

    Raises:
        InputError: nothing evaluates a run, or a value changes the environment or the length of episodes.
    """
    doubtful = []
    _check_evaluated(plans[0])
    first, *tried = [json.loads(plan.to_json()) for plan in plans]
    steps = episode_steps(first)
    for varied in space:
        for text in varied.tried:
            plan, over = tried.pop(0), f"--over {varied.key}, at {text}"
            if plan["environment"]["id"] != first["environment"]["id"]:
                raise InputError(
                    f"{over}: returns of {plan['environment']['id']} do not compare with those of "
                    f"{first['environment']['id']}: search in one environment at a time"
                )
            if (other := episode_steps(plan)) != steps:
                raise InputError(
                    f"{over}: returns of episodes of {other:,} steps do not compare with those of {steps:,}, "
                    "as the topology has them: give all one length, "
                    f"--set components.evaluator.episode_steps={min(steps, other)}"
                )
            if rewarded_by(plan) != rewarded_by(first) and varied.key not in doubtful:
                doubtful.append(varied.key)
    if doubtful:
        keys = ", ".join(doubtful)
        say(f"{keys}: returns compare only where this changes no reward and no episode's length")


def _check_evaluated(plan: Plan) -> None:
    if not_evaluated(plan):
        raise InputError(
            f"no Python program makes {plan.run.env}, so the shipped evaluator scores no run of it, and a "
            "search has nothing to compare: name one of yours, components.evaluator.use"
        )
