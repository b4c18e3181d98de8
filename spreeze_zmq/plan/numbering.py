"""The numbers of a run's environments, which ``{index}`` in ``env_kwargs`` stands for; no two are equal."""

from __future__ import annotations

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR

#: 0 is the environment that is tried before the run, then the page's, then that of films and windows.
PAGE, FILM, FIRST = 1, 2, 3


def first_index(plan: Plan, role: str, index: int = 0) -> int:
    """The number of a process's first environment: the evaluator's come first, then each sampler's in turn.

    Args:
        plan: of the run.
        role: the evaluator or the sampler.
        index: of the process within its role.
    """
    if role == EVALUATOR:
        return FIRST
    evaluators = plan.components[EVALUATOR].options.get("episodes", 0)
    return FIRST + int(evaluators) + index * int(plan.components[role].options.get("envs", 1))
