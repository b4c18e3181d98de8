"""What would keep a valid topology from learning, in one line each, before its run begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import algorithms
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER

#: Observations beyond this are far from the numbers around 1 that fresh networks are made for.
LARGE = 1_000.0
#: A process has too little time to start if one environment took this share of it.
NEARLY = 0.7


def advice(plan: Plan, observations: NDArray[Any] | None) -> tuple[str, ...]:
    """Lines about a plan and the first ``observations`` ``[N, *obs_shape]`` of its environment, if one was
    stepped.
    """
    lines = _about_pixels(plan), _about_scale(plan, observations), _about_start(plan)
    return tuple(filter(None, lines))


def _about_start(plan: Plan) -> str:
    """That a process may be given up while it makes an environment, as a written deadline is kept."""
    make_s = plan.timing.get("make_s", 0.0)
    for role in (SAMPLER, EVALUATOR):
        allowed_s = plan.components[role].start_timeout_s
        if make_s >= NEARLY * allowed_s:
            took = f"making one environment took {make_s:.0f} s"
            return f"components.{role}.start_timeout_s: {took}, and {allowed_s:g} s are allowed: raise it"
    return ""


def _about_pixels(plan: Plan) -> str:
    env, name = plan.environment, plan.run.algorithm
    if not algorithms.flattens(algorithms.get(name), env):
        return ""
    shape = "x".join(map(str, env.obs_shape))
    size = f"{int(np.prod(env.obs_shape)):,}"
    others = "ppo has" if env.action_kind != "discrete" else "dqn, ppo and pqn have"
    taken = f"{name} takes an image of {shape} as a vector of {size} numbers"
    return f"run.algorithm: {taken}; {others} convolutions"


def _about_scale(plan: Plan, observations: NDArray[Any] | None) -> str:
    scaled = plan.algorithm["normalize_observations"] or plan.environment.obs_dtype == "uint8"
    if scaled or observations is None or plan.tried.get("lost_digits"):  # of which a finding tells
        return ""
    rows = np.abs(observations.reshape(len(observations), -1).astype(np.float64)).mean(0)
    place = int(rows.argmax())
    if rows[place] <= LARGE:
        return ""
    what = f"{(rows > LARGE).sum()} of the {len(rows)} numbers of an observation exceed {LARGE:,.0f}"
    example = f"number {place} is around {rows[place]:.1g} in size"
    return f"run.env: {what}, {example}: set algorithm.normalize_observations = true"
