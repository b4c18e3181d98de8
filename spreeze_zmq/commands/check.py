"""What is said of a topology before its run: a look at the environment, and what ``--check`` prints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from spreeze_zmq import algorithms, envs
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.schema import in_words, options_of
from spreeze_zmq.envs import Timing
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, OBSERVER, SAMPLER
from spreeze_zmq.screen.terminal.numbers import memory

#: Whose work each limit of a run grows by; the clock needs nobody.
GROWS_BY = {"mean_return": EVALUATOR, "env_steps": SAMPLER, "trained_transitions": CRITIC_LEARNER}
#: An environment that takes as long to make is one to tell of.
SLOW_S = 5.0


class FirstLook:
    """``envs.look`` that says what takes long, and looks once at what is asked for again.

    Attributes:
        last: what was seen last; None for an environment that a topology describes.
        began_s: when it was looked first, in seconds since 1970; infinite before.
    """

    def __init__(self) -> None:
        self.last: envs.Look | None = None
        self.began_s = math.inf
        self._seen: dict[str, envs.Look] = {}

    def __call__(
        self, env_id: str, env_kwargs: Mapping[str, Any], randomize: Mapping[str, Any], **named: Any
    ) -> envs.Look:
        """As ``envs.look``."""
        key = json.dumps([env_id, env_kwargs, randomize], default=repr)
        if key not in self._seen:
            self.began_s = min(self.began_s, time.time())
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


def report(plan: Plan, advised: Sequence[str] = (), remarks: Sequence[str] = ()) -> str:
    """What would be trained, when it ends, the number of processes, the memory of the replays, lines of
    advice, and remarks about the environment.

    Raises:
        InputError: the replays of all learners do not fit in the memory.
    """
    from spreeze_zmq.learner.setup import check_memory  # imports torch, which a launcher does not need

    rows = {
        "environment": environment(plan),
        "engine": engine(plan),
        "algorithm": plan.run.algorithm,
        "ends": ends(plan),
        "processes": ", ".join(_count(plan, role) for role in plan.components),
        "replay": replay(check_memory(plan), plan.groups_here),
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


def engine(plan: Plan) -> str:
    """What steps the environments, and why that; empty for a described one, which nothing here steps."""
    if not plan.timing:
        return ""
    seen, sampler = Timing.from_plain(plan.timing), plan.components[SAMPLER]
    why = f"{seen.backend}: {seen.reason}"
    stated = sampler.options["backend"] if sampler.use == SAMPLER else f"that of {sampler.use}"
    return why if stated in ("auto", seen.backend) else f"{stated} for samplers; for evaluations {why}"


def ends(plan: Plan) -> str:
    stop = to_plain(plan.run.stop)
    given = [f"{name} {value:,.15g}" for name, value in stop.items() if value is not None]
    return "; ".join(filter(None, (f"at {' or '.join(given)}" if given else "never", endless(plan))))


def endless(plan: Plan, *, observed: bool = False) -> str:
    """That no limit ends a run, what does, and until when; empty where a limit ends it.

    Args:
        plan: of the run.
        observed: whether callbacks of the script that begins it may end it.
    """
    stop = plan.run.stop
    roles = {GROWS_BY.get(each.name) for each in fields(stop) if getattr(stop, each.name) is not None}
    missing = [role for role in GROWS_BY.values() if role in roles and not plan.components[role].launched]
    if len(roles) > len(missing):
        return ""
    are = "are" if len(missing) > 1 else "is"
    until = f" until its {' and '.join(missing)} {are} started by hand" if missing else ""
    who = "a callback or Ctrl-C" if observed or may_be_stopped(plan) else "Ctrl-C"
    return f"nothing ends this run but {who}{until}; --set run.stop.minutes=10 would"


def may_be_stopped(plan: Plan) -> bool:
    """Whether an observer of the run may end it: a program of the user's, or callbacks that do more than log.

    Raises:
        InputError: one of them is no callback.
    """
    if (observer := plan.components.get(OBSERVER)) is None:
        return False
    from spreeze_zmq.callbacks.named import kind_of, may_stop  # a run without callbacks needs none of it

    names = observer.options.get("callbacks", ())
    return observer.use != OBSERVER or may_stop(map(kind_of, names))


def replay(sizes: Mapping[str, int], num_groups: int) -> str:
    """The memory of each learner's full replay, ``sizes`` in bytes, and of those of all groups together."""
    if not any(sizes.values()):
        return "none: each round of rollouts is thrown away"
    each = ", ".join(f"{role} {memory(size)}" for role, size in sizes.items())
    groups = f" of {num_groups} groups" if num_groups > 1 else ""
    return f"{each}; together {memory(num_groups * sum(sizes.values()))}{groups} when full"


def _count(plan: Plan, role: str) -> str:
    component = plan.components[role]
    count = component.count
    number = f"{count.initial}" + f" to {count.maximum}" * (count.minimum < count.maximum)
    envs = component.options.get("envs") if role == SAMPLER else None
    of = f" of {envs} environments" if envs else ""
    named = role + "s" * (count.maximum > 1)
    return f"{number} {named}{of}" if component.launched else f"{role} by hand"
