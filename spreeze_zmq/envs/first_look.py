"""A look at one environment before it is trained in: its spec, whether it can be stepped, what that takes.

It runs the user's code, and so happens in a process of its own: see ``spreeze_zmq.envs.probing``.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, InvalidEnvironment
from spreeze_zmq.envs.own_spaces import action_start, obs_parts
from spreeze_zmq.envs.spec import EnvironmentSpec, spec_of

#: Steps that are timed, and the longest time for them.
TIMED_STEPS, TIMED_S = 3, 1.0
#: With a slower reset no more of them are made to find what is odd.
SLOW_RESET_S = 1.0
#: The most bytes of observations that a look keeps.
OBSERVATIONS_BYTES = 16_000_000


@dataclass(frozen=True)
class Timing:
    """What one environment took, in seconds; waits for a core of the machine do not count.

    Attributes:
        backend: the engine that stepped it.
        make_s: to make it.
        make_computes: CPU seconds of that.
        reset_s: for its first reset.
        step_s: for a step, the median of three.
        step_computes: CPU seconds of such a step; a step that waits for another program has few.
        computes: the share of the resets' and steps' time for which it computed.
        close_s: for ``close()``; infinite where that did not return.
    """

    backend: str
    make_s: float = 0.0
    make_computes: float = 0.0
    reset_s: float = 0.0
    step_s: float = 0.0
    step_computes: float = 0.0
    computes: float = 1.0
    close_s: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """Plain data, with -1 for an infinite ``close_s``; ``from_plain`` is its inverse."""
        return {**asdict(self), "close_s": -1.0 if self.close_s == math.inf else self.close_s}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Timing:
        """The timing that ``to_plain`` described."""
        found = cls(**data)
        return replace(found, close_s=math.inf) if found.close_s < 0 else found


@dataclass(frozen=True)
class Look:
    """What is known of an environment after one was made, reset, stepped and closed.

    Attributes:
        spec: its spaces and time limit.
        timing: what that took.
        facts: what is odd about it, as ``envs.facts`` has it.
        fault: why it cannot be trained in, in one line with the user's file and line; empty where it can.
        observations: ``[3, *obs_shape]`` of a reset, a step and another reset; None if they are large.
        remarks: what else is odd, one line each: none of it keeps it from being trained in.
    """

    spec: EnvironmentSpec
    timing: Timing
    fault: str = ""
    observations: NDArray[Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def look_at(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    randomize: Mapping[str, Any] | None,
    doing: Callable[[str], None],
) -> tuple[Look, Any]:
    """Make one environment in this process, reset and step it.

    Args:
        env_id: as for ``envs.make``.
        env_kwargs: arguments of its constructor.
        randomize: ranges of its model's parameters.
        doing: called before each call of the user's code, with its name in words.

    Returns:
        The look, and the batch of one, which is still open; None if it had to be closed.

    Raises:
        InvalidEnvironment: it cannot be made, or no policy can act in its spaces.
    """
    from spreeze_zmq.envs.facts import facts_of
    from spreeze_zmq.envs.make import RESERVED, make
    from spreeze_zmq.envs.trial import fault_of

    if reserved := [name for name in RESERVED if name in env_kwargs]:
        raise InvalidEnvironment(f"{env_id}: '{reserved[0]}' is set by the system, not by env_kwargs")
    doing("making it")
    began_s, began_cpu_s = served_s(), time.process_time()
    batch = make(env_id, 1, max_failures=0, randomize=randomize, **env_kwargs)
    making: dict[str, Any] = {"make_s": served_s() - began_s}
    making["make_computes"] = time.process_time() - began_cpu_s
    doing("reading its spaces")
    spaces = batch.single_observation_space, batch.single_action_space
    spec = spec_of(env_id, env_kwargs, *spaces, batch.episode_limit)
    observed, action = batch.own_spaces
    spec = replace(spec, action_start=action_start(action), obs_parts=obs_parts(observed))
    doing("its reset() or step()")
    observations, fault = fault_of(env_id, env_kwargs, batch)
    if fault:
        return Look(spec, Timing(batch.backend, **making), fault), None
    timing = replace(timed(batch), **making)
    facts = {}
    if timing.reset_s < SLOW_RESET_S:
        with contextlib.suppress(EnvironmentFailure):  # a later step fails: a run tolerates some
            facts = facts_of(batch)
    few = observations if observations is not None and observations.nbytes <= OBSERVATIONS_BYTES else None
    return Look(spec, timing, observations=few, facts=facts), batch


def timed(one: Any) -> Timing:
    """Reset and step a batch of one environment, and take the times."""
    began_s, began_cpu_s = served_s(), time.process_time()
    one.reset(seed=0)
    reset_s = served_s() - began_s
    steps: list[tuple[float, float]] = []
    until_s = time.monotonic() + TIMED_S
    while not steps or (len(steps) < TIMED_STEPS and time.monotonic() < until_s):
        step_began_s, cpu_s = served_s(), time.process_time()
        one.step(one.action_space.sample())
        steps.append((served_s() - step_began_s, time.process_time() - cpu_s))
    step_s, step_computes = statistics.median_low(steps)
    computes = (time.process_time() - began_cpu_s) / max(served_s() - began_s, 1e-9)
    return Timing(one.backend, reset_s=reset_s, step_s=step_s, step_computes=step_computes, computes=computes)


def served_s() -> float:
    """Seconds on a clock that stops while this thread waits for a core, where the system counts that wait."""
    now_s = time.monotonic()
    try:  # nanoseconds that it ran, nanoseconds that it could have run, time slices
        return now_s - 1e-9 * int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return now_s


def plain(look: Look) -> dict[str, Any]:
    """A look as plain data for another process; ``from_plain`` is its inverse."""
    spec = {name: value for name, value in look.spec.to_dict().items() if name != "kwargs"}
    obs = look.observations
    sent = None if obs is None else [obs.dtype.str, list(obs.shape), np.ascontiguousarray(obs).tobytes()]
    timing = look.timing.to_plain()
    return {"spec": spec, "timing": timing, "fault": look.fault, "facts": look.facts, "observations": sent}


def from_plain(data: Mapping[str, Any], env_kwargs: Mapping[str, Any]) -> Look:
    """The look that ``plain`` described, of an environment with these arguments."""
    spec = EnvironmentSpec.from_dict({**data["spec"], "kwargs": dict(env_kwargs)})
    observations = None
    if data["observations"] is not None:
        dtype, shape, content = data["observations"]
        observations = np.frombuffer(content, np.dtype(dtype)).reshape(shape)
    return Look(spec, Timing.from_plain(data["timing"]), data["fault"], observations, data["facts"])
