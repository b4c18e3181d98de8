"""Lines of advice about a topology before its run: what has no effect, and what will not go well."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms.encoders import of_mlp_alone
from spreeze_zmq.base.schema import options_of, show
from spreeze_zmq.commands.idle import idle
from spreeze_zmq.envs import Timing
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.tasks import NATIVE
from spreeze_zmq.evaluation.arena import stepped_in_workers
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.plan.topology.component_file import read_component_file
from spreeze_zmq.plan.topology.deadlines import first_call_allowance_s

#: Observations beyond this are far from the numbers around 1 that fresh networks are made for.
LARGE = 1_000.0
#: A process has too little time to start if one environment took this share of it.
NEARLY = 0.7


def advice(plan: Plan, observations: NDArray[Any] | None) -> tuple[str, ...]:
    """Lines about a plan and the first ``observations`` ``[N, *obs_shape]`` of its environment, if one was
    stepped.
    """
    scale, start, batch = _about_scale(plan, observations), _about_start(plan), _about_batch(plan)
    lines = scale, start, batch, _about_drawing(plan), _about_version(plan)
    return (*filter(None, lines), *without_effect(plan), *_about_videos(plan), *_about_data(plan))


def _about_batch(plan: Plan) -> str:
    """That copies of a network come by updates, whose size is not known beforehand."""
    every, limit = plan.algorithm.get("target_every", 1), plan.algorithm.get("max_batch_size")
    if every == 1 or plan.algorithm["batch_size"] != "auto":
        return ""
    return (
        f"algorithm.target_every = {show(every)} counts updates, each of up to {show(limit)} transitions by "
        'batch_size = "auto": write a number for batch_size, or let algorithm.tau move the target'
    )


def _about_drawing(plan: Plan) -> str:
    """That environments draw while they train, which takes time, windows or the native engine."""
    mode = plan.run.env_kwargs.get("render_mode")
    costs = ["opens a window for each environment"] if mode == "human" else []
    if mode is not None and plan.environment.id in NATIVE:
        costs.append("keeps the environments from their native engine")
    if not costs or plan.environment.described:
        return ""
    return (
        f"run.env_kwargs.render_mode = {show(mode)} {' and '.join(costs)}: leave it out; the page, "
        "spreeze play and videos draw the agent without it"
    )


def _about_version(plan: Plan) -> str:
    """That another version of Gymnasium's environment has a native engine, and the one that is named none."""
    named = plan.environment.id
    native = next((each for each in NATIVE if each.rpartition("-v")[0] == named.rpartition("-v")[0]), named)
    if native == named or not plan.timing or not engine_of(plan.timing["backend"]).one_by_one:
        return ""
    return (
        f"run.env: {native} is stepped as one batch in native code, {named} one by one in Python: "
        f'env = "{native}", whose returns are not those of {named}'
    )


def _about_data(plan: Plan) -> Iterator[str]:
    """Yield a line for each source that another environment's episodes are of."""
    for name, source in plan.data.items():
        if source.differs:
            yield f"data.{name} was {source.differs}: its transitions may be others than this run's"


def without_effect(plan: Plan, *, defaults: bool = False) -> Iterator[str]:
    """Yield a line, which begins with its key, for each option that was given a value and has no effect.

    Args:
        plan: that holds the values.
        defaults: take those that are the default as given, too, as they are where a search tries them.
    """
    kind = algorithms.get(plan.run.algorithm)
    options = {option.name: option for option in options_of(kind.Options)}
    for name, option in options.items():
        value = plan.algorithm[name]
        is_read = name == "hindsight_goals" and plan.learning.rows_each > 1  # by a relabelling of one's own
        is_given = defaults or value != option.default
        if is_given and not is_read and not option.has_effect(plan.algorithm):
            other = plan.algorithm[option.only_with]
            yield (
                f"algorithm.{name} = {show(value)} has no effect while algorithm.{option.only_with} is "
                f"{show(other)}"
            )
    values = {name: plan.algorithm[name] for name in options}
    for name in of_mlp_alone(plan.environment, algorithms.options_from(kind.Options, values)):
        if (value := plan.algorithm[name]) != options[name].default or defaults:
            yield f"algorithm.{name} = {show(value)} has no effect: images go through convolutions"
    if plan.components[EVALUATOR].options.get("randomize") and not plan.run.randomize:
        yield f"components.{EVALUATOR}.randomize = true has no effect without run.randomize"
    if plan.run.randomize and (sampler := plan.components[SAMPLER]).use != SAMPLER:
        yield f"run.randomize: the shipped sampler draws from it, {sampler.use} may not"
    yield from plan.replaced
    yield from idle(plan, defaults=defaults)
    yield from _about_step_timeout(plan, defaults=defaults)
    yield from _about_evaluator(plan, defaults=defaults)


def _about_evaluator(plan: Plan, *, defaults: bool) -> Iterator[str]:
    """Yield a line for each option of the shipped evaluator that others, or the environment, overrule."""
    evaluator, limit = plan.components[EVALUATOR], plan.environment.max_episode_steps
    if evaluator.use != EVALUATOR:
        return
    own, steps = evaluator.options, evaluator.options["episode_steps"]
    engine = engine_of(plan.timing["backend"]) if plan.timing else None
    batched = engine is not None and bool(engine.native or engine.module)
    few = own["confirm_episodes"] < own["episodes"]
    idle = {
        "workers": (batched, "all environments step at once"),
        "confirm_episodes": (few, f"components.{EVALUATOR}.episodes is more"),
        "episode_steps": (steps != "auto" and steps > (limit or steps), f"episodes end after {limit} steps"),
    }
    options = {option.name: option for option in read_component_file(Path(evaluator.folder)).options}
    for name, (holds, why) in idle.items():
        if holds and (defaults or own[name] not in (0, options[name].default)):
            yield f"components.{EVALUATOR}.{name} = {show(own[name])} has no effect: {why}"


def _about_step_timeout(plan: Plan, *, defaults: bool) -> Iterator[str]:
    """Yield a line where a deadline of steps is given, and no worker takes any."""
    sampler, evaluator = plan.components[SAMPLER], plan.components[EVALUATOR]
    if sampler.use != SAMPLER or evaluator.use != EVALUATOR or not plan.timing:
        return
    unset = {option.name: option.default for option in read_component_file(Path(sampler.folder)).options}
    given, workers = sampler.options["step_timeout_s"], sampler.options["workers"]
    unwritten = unset["step_timeout_s"] + first_call_allowance_s(Timing.from_plain(plan.timing))
    if (given == unwritten and not defaults) or stepped_in_workers(plan):
        return
    here = ", which takes none here" if workers else ""
    yield (
        f"components.{SAMPLER}.step_timeout_s = {show(given)} has no effect while "
        f"components.{SAMPLER}.workers is {show(workers)}{here}: only workers can be ended in a step"
    )


def _about_videos(plan: Plan) -> Iterator[str]:
    """Yield a line where videos that are asked for cannot be written, or come after the run's end."""
    steps = plan.components[EVALUATOR].options.get("videos") or ()
    if steps and find_spec("imageio_ffmpeg") is None:
        from spreeze_zmq.evaluation.video.recorder import NO_ENCODER

        yield f"components.{EVALUATOR}.videos: {NO_ENCODER}"
    if plan.offline and any(steps):
        yield f"components.{EVALUATOR}.videos: no env step is reached in a run without samplers"
    limit = plan.run.stop.env_steps
    if late := [step for step in steps if limit is not None and step > limit]:
        yield f"components.{EVALUATOR}.videos: {late[0]:,} env steps are after the run's end at {limit:,}"


def _about_start(plan: Plan) -> str:
    """That a process may be given up while it makes an environment, as a written deadline is kept."""
    make_s = plan.timing.get("make_s", 0.0)
    for role in (SAMPLER, EVALUATOR):
        allowed_s = plan.components[role].start_timeout_s
        if make_s >= NEARLY * allowed_s:
            took = f"making one environment took {make_s:.0f} s"
            return f"components.{role}.start_timeout_s: {took}, and {allowed_s:g} s are allowed: raise it"
    return ""


def _about_scale(plan: Plan, observations: NDArray[Any] | None) -> str:
    scaled = plan.algorithm["normalize_observations"] or plan.environment.obs_dtype == "uint8"
    if scaled or observations is None or plan.tried.get("lost_digits"):  # a finding says so
        return ""
    rows = np.abs(observations.reshape(len(observations), -1).astype(np.float64)).mean(0)
    place = int(rows.argmax())
    if rows[place] <= LARGE:
        return ""
    what = f"{(rows > LARGE).sum()} of the {len(rows)} numbers of an observation exceed {LARGE:,.0f}"
    example = f"number {place} is around {rows[place]:.1g} in size"
    return f"run.env: {what}, {example}: set algorithm.normalize_observations = true"
