"""What is said of a topology before its run: a look at the environment, advice, ``--check``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq import algorithms, envs
from spreeze_zmq.algorithms.encoders import of_mlp_alone
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.schema import in_words, options_of, show
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.evaluation.arena import stepped_in_workers
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, SAMPLER
from spreeze_zmq.plan.topology.component_file import read_component_file

#: Whose work each limit of a run grows by; the clock needs nobody.
GROWS_BY = {"mean_return": EVALUATOR, "env_steps": SAMPLER, "trained_transitions": CRITIC_LEARNER}
#: An environment that takes as long to make is one to tell of.
SLOW_S = 5.0


class FirstLook:
    """``envs.look`` that says what takes long, and looks once at what is asked for again.

    Attributes:
        last: what was seen last; None for an environment that a topology describes.
    """

    def __init__(self) -> None:
        self.last: envs.Look | None = None
        self._seen: dict[str, envs.Look] = {}

    def __call__(
        self, env_id: str, env_kwargs: Mapping[str, Any], randomize: Mapping[str, Any], **named: Any
    ) -> envs.Look:
        """As ``envs.look``."""
        key = json.dumps([env_id, env_kwargs, randomize], default=repr)
        if key not in self._seen:
            self._seen[key] = envs.look(env_id, env_kwargs, randomize, **named, say=_say)
        self.last = self._seen[key]
        return self.last

    def observations(self) -> NDArray[Any] | None:
        """The environment's first observations, ``[3, *obs_shape]``, if there are any.

        Raises:
            InvalidEnvironment: it cannot be trained in.
        """
        return self.last.tried() if self.last else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is odd about the environment, one line each."""
        if self.last is None:
            return ()
        make_s = self.last.timing.make_s
        slow = (f"making one took {make_s:.0f} s; a sampler makes components.sampler.envs of them",)
        return (*self.last.remarks, *slow * (make_s >= SLOW_S))


def _say(line: str) -> None:
    say(f"note {line}", flush=True)


# --- advice

#: Observations beyond this are far from the numbers around 1 that fresh networks are made for.
LARGE = 1_000.0
#: A process has too little time to start if one environment took this share of it.
NEARLY = 0.7


def advice(plan: Plan, observations: NDArray[Any] | None) -> tuple[str, ...]:
    """Lines about a plan and the first ``observations`` ``[N, *obs_shape]`` of its environment, if one was
    stepped.
    """
    lines = _about_scale(plan, observations), _about_start(plan), *_about_effect(plan), *_about_videos(plan)
    return (*filter(None, lines), *_about_data(plan))


def _about_data(plan: Plan) -> Iterator[str]:
    """Yield a line for each source that another environment's episodes are of."""
    for name, source in plan.data.items():
        if source.differs:
            yield f"data.{name} was {source.differs}: its rewards may be others than this run's"


def _about_effect(plan: Plan) -> Iterator[str]:
    """Yield a line for each option that was given a value and has no effect beside the others."""
    kind = algorithms.get(plan.run.algorithm)
    options = {option.name: option for option in options_of(kind.Options)}
    for name, option in options.items():
        value = plan.algorithm[name]
        if value != option.default and not option.has_effect(options, plan.algorithm):
            other = plan.algorithm[option.only_with]
            yield (
                f"algorithm.{name} = {show(value)} has no effect while algorithm.{option.only_with} is "
                f"{show(other)}"
            )
    values = {name: plan.algorithm[name] for name in options}
    for name in of_mlp_alone(plan.environment, algorithms.options_from(kind.Options, values)):
        if (value := plan.algorithm[name]) != options[name].default:
            yield f"algorithm.{name} = {show(value)} has no effect: images go through convolutions"
    if plan.components[EVALUATOR].options.get("randomize") and not plan.run.randomize:
        yield f"components.{EVALUATOR}.randomize = true has no effect without run.randomize"
    if plan.run.randomize and (sampler := plan.components[SAMPLER]).use != SAMPLER:
        yield f"run.randomize: the shipped sampler draws from it, {sampler.use} may not"
    yield from plan.replaced
    yield from _about_step_timeout(plan)
    yield from _about_evaluator(plan)


def _about_evaluator(plan: Plan) -> Iterator[str]:
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
        if holds and own[name] not in (0, options[name].default):
            yield f"components.{EVALUATOR}.{name} = {show(own[name])} has no effect: {why}"


def _about_step_timeout(plan: Plan) -> Iterator[str]:
    """Yield a line where a deadline of steps is given, and no worker takes any."""
    sampler, evaluator = plan.components[SAMPLER], plan.components[EVALUATOR]
    if sampler.use != SAMPLER or evaluator.use != EVALUATOR or not plan.timing:
        return
    defaults = {option.name: option.default for option in read_component_file(Path(sampler.folder)).options}
    given, workers = sampler.options["step_timeout_s"], sampler.options["workers"]
    if given == defaults["step_timeout_s"] or stepped_in_workers(plan):
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


# --- what --check prints


def report(plan: Plan, advised: Sequence[str] = (), remarks: Sequence[str] = ()) -> str:
    """What would be trained, when it ends, the number of processes, the memory of the replays, lines of
    advice, and remarks about the environment.

    Raises:
        InputError: the replays of all learners do not fit in the memory.
    """
    from spreeze_zmq.learner.setup import check_memory  # imports torch, which a launcher does not need

    rows = {
        "environment": environment(plan),
        "algorithm": plan.run.algorithm,
        "ends": ends(plan),
        "processes": ", ".join(_count(plan, role) for role in plan.components),
        "replay": replay(check_memory(plan)),
    }
    rows |= {"goals": _goals(plan), "data": _data(plan), "numbers": _moving(plan)}
    if plan.environment.described:
        rows["evaluation"] = "none by the shipped evaluator: no Python program makes this environment"
    rows = {name: text for name, text in rows.items() if text}
    pairs = [*rows.items(), *(("advice", line) for line in advised), *(("remark", line) for line in remarks)]
    return "\n".join(f"  {name:12} {text}" for name, text in pairs)


def _goals(plan: Plan) -> str:
    """What is kept in hindsight."""
    if plan.algorithm.get("hindsight", "off") == "off":
        return ""
    more = plan.algorithm["hindsight_goals"]
    return f'each transition is kept again with {more} goals, of hindsight "{plan.algorithm["hindsight"]}"'


def _data(plan: Plan) -> str:
    """What is trained on beside what is sampled."""
    fills = "fill the replay before training"
    return "; ".join(
        f"{name}: {source.transitions:,} transitions of {source.source} "
        + (fills if source.share is None else f"are {source.share:.0%} of each batch")
        for name, source in plan.data.items()
    )


def _moving(plan: Plan) -> str:
    """The numbers that move or differ by network."""
    tables = {
        option.name: value
        for option in options_of(algorithms.get(plan.run.algorithm).Options)
        if (option.schedule or option.by_network) and isinstance(value := plan.algorithm[option.name], dict)
    }
    return "; ".join(f"{name} {in_words(value)}" for name, value in tables.items())


def environment(plan: Plan) -> str:
    """The environment's spaces and time limit."""
    spec = plan.environment
    action = f"one each of {list(spec.action_sizes)}"
    if spec.action_kind == "box":
        action = f"{list(spec.action_shape)} numbers"
    elif spec.action_kind == "discrete":
        action = f"one of {spec.num_actions}"
    if spec.action_mask:
        action += f", only legal ones: its action_mask of {spec.num_choices} flags is used"
    observed = f"{list(spec.obs_shape)} {spec.obs_dtype}"
    if algorithms.has_part_encoders(algorithms.get(plan.run.algorithm), spec, plan.algorithm.get("network")):
        observed += f", an encoder for each of {len(spec.obs_parts)} part{'s' * (len(spec.obs_parts) > 1)}"
    limit = (
        f"at most {spec.max_episode_steps} steps an episode" if spec.max_episode_steps else "no time limit"
    )
    return f"{spec.id}: observations {observed}, actions {action}, {limit}"


def ends(plan: Plan) -> str:
    stop = to_plain(plan.run.stop)
    given = [f"{name} {value:,g}" for name, value in stop.items() if value is not None]
    return "; ".join(filter(None, (f"at {' or '.join(given)}" if given else "never", endless(plan))))


def endless(plan: Plan) -> str:
    """That nothing but Ctrl-C ends a run, and until when; empty where a limit ends it."""
    stop = plan.run.stop
    roles = {GROWS_BY.get(each.name) for each in fields(stop) if getattr(stop, each.name) is not None}
    missing = [role for role in GROWS_BY.values() if role in roles and not plan.components[role].launched]
    if len(roles) > len(missing):
        return ""
    are = "are" if len(missing) > 1 else "is"
    until = f" until its {' and '.join(missing)} {are} started by hand" if missing else ""
    return f"nothing ends this run but Ctrl-C{until}; --set run.stop.minutes=10 would"


def replay(sizes: dict[str, int]) -> str:
    if not any(sizes.values()):
        return "none: each round of rollouts is thrown away"
    each = ", ".join(f"{role} {size / 1e9:.2f} GB" for role, size in sizes.items())
    return f"{each}; together {sum(sizes.values()) / 1e9:.2f} GB when full"


def _count(plan: Plan, role: str) -> str:
    component = plan.components[role]
    count = component.count
    number = f"{count.initial}" + f" to {count.maximum}" * (count.minimum < count.maximum)
    envs = component.options.get("envs") if role == SAMPLER else None
    of = f" of {envs} environments" if envs else ""
    named = role + "s" * (count.maximum > 1)
    return f"{number} {named}{of}" if component.launched else f"{role} by hand"
