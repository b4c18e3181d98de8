"""What would keep a valid topology from learning, or slow it, in one line each, before its run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spreeze_zmq import algorithms
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER

if TYPE_CHECKING:
    from spreeze_zmq.envs.trial import Tried

#: Observations beyond this are far from the numbers around 1 that fresh networks are made for.
LARGE = 1_000.0


def advice(plan: Plan, tried: Tried | None) -> tuple[str, ...]:
    """Lines about a plan and what its environment gave, if that was tried out."""
    lines = [_about_pixels(plan)]
    if tried is not None:
        lines += [_about_scale(plan, tried), _about_waiting(plan, tried)]
    return tuple(filter(None, lines))


def _about_pixels(plan: Plan) -> str:
    env, name = plan.environment, plan.run.algorithm
    if not algorithms.flattens(algorithms.get(name), env):
        return ""
    shape = "x".join(map(str, env.obs_shape))
    size = f"{int(np.prod(env.obs_shape)):,}"
    others = "ppo has" if env.action_kind != "discrete" else "dqn, ppo and pqn have"
    taken = f"{name} takes an image of {shape} as a vector of {size} numbers"
    return f"run.algorithm: {taken}; {others} convolutions"


def _about_scale(plan: Plan, tried: Tried) -> str:
    scaled = plan.algorithm["normalize_observations"] or plan.environment.obs_dtype == "uint8"
    if scaled:
        return ""
    rows = np.abs(tried.observations.reshape(len(tried.observations), -1).astype(np.float64)).mean(0)
    place = int(rows.argmax())
    if rows[place] <= LARGE:
        return ""
    what = f"{(rows > LARGE).sum()} of the {len(rows)} numbers of an observation exceed {LARGE:,.0f}"
    example = f"number {place} is around {rows[place]:.1g} in size"
    return f"run.env: {what}, {example}: set algorithm.normalize_observations = true"


def _about_waiting(plan: Plan, tried: Tried) -> str:
    from spreeze_zmq.envs.trial import WAITS_S  # imports gymnasium, as does the next
    from spreeze_zmq.run.arena import SLOW_TOGETHER_S

    sampler = plan.components[SAMPLER].options
    envs = sampler.get("envs", 1)
    by_itself = tried.waits_s >= SLOW_TOGETHER_S / envs  # then "auto" takes workers without being told
    if sampler.get("workers") != "auto" or envs == 1 or tried.waits_s < WAITS_S or by_itself:
        return ""
    waits = f"a step waits {1000 * tried.waits_s:.0f} ms without computing"
    hint = f"set components.sampler.workers = {envs} to let them wait together"
    return f"run.env: {waits}, and a sampler steps its {envs} environments in turn: {hint}"
