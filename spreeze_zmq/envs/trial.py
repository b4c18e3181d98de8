"""Tries out an environment before a run: its spec, whether it can be stepped, what that takes.

It runs the user's code, and so happens in a process of its own: see ``spreeze_zmq.envs.probing``. A mistake
is named in one message, with its file and line.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from spreeze_zmq.base.errors import (
    EnvironmentFailure,
    InvalidEnvironment,
    definition_of,
    in_one_line,
    is_users,
    let_interrupts_pass,
    place_of,
)
from spreeze_zmq.base.usage import served_s
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.door import RESET, STEP, WrongReturn, expected_reward, reward_of, shown
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.engines.fitting import without_limit
from spreeze_zmq.envs.facts import facts_of, failed_later
from spreeze_zmq.envs.failures import close
from spreeze_zmq.envs.goals import goal_facts
from spreeze_zmq.envs.in_process import choose
from spreeze_zmq.envs.make import make
from spreeze_zmq.envs.seen import Look, Timing
from spreeze_zmq.envs.source import full_id
from spreeze_zmq.envs.spec import EnvironmentSpec, spec_of

#: Steps that are timed, and the longest time for them.
TIMED_STEPS, TIMED_S = 3, 1.0
#: More of them where they are quick, since the first are the slowest.
MORE_STEPS, MORE_S = 50, 0.01
#: With a slower reset no more of them are made to find what is odd, so that seeds are not looked at.
SLOW_RESET_S = 1.0
#: Wrappers that change nothing of what passes.
PASSIVE = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
#: The most bytes of observations that a look keeps.
OBSERVATIONS_BYTES = 16_000_000


def look_at(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    randomize: Mapping[str, Any] | None,
    doing: Callable[[str], None],
) -> tuple[Look, BatchedEnv | None]:
    """Make one environment in this process, reset and step it.

    Args:
        env_id: as for ``envs.make``.
        env_kwargs: arguments of its constructor.
        randomize: ranges of its model's parameters.
        doing: called before each call of the user's code, with its name in words.

    Returns:
        The look, whose spec has the :func:`full_id`, and the batch of one, which is still open; None if it
        had to be closed.

    Raises:
        InvalidEnvironment: it cannot be made, or no policy can act in its spaces.
    """
    env_id = full_id(env_id)
    doing("making it")
    began_s, began_cpu_s = served_s(), time.process_time()
    batch = make(env_id, 1, max_failures=0, randomize=randomize, env_kwargs=env_kwargs)
    making: dict[str, Any] = {"reason": batch.backend_reason, "make_s": served_s() - began_s}
    making["make_computes"] = time.process_time() - began_cpu_s
    doing("reading its spaces")
    spaces = batch.single_observation_space, batch.single_action_space
    spec = spec_of(env_id, env_kwargs, *spaces, batch.episode_limit, batch.own_spaces)
    doing("its reset() or step()")
    observations, fault, making["first_call_s"] = fault_of(env_id, env_kwargs, batch)
    spec = replace(spec, action_mask=batch.masks is not None)
    if fault:
        return Look(spec, Timing(batch.backend, **making), fault), None
    timing = replace(timed(batch), **making)
    facts, remarks = _odd(batch, spec, timing.reset_s)
    if timing.step_s * TIMED_STEPS < MORE_S:
        with contextlib.suppress(EnvironmentFailure):  # a remark has it, or a run's samplers will
            step_s, step_computes = _usual_step(batch, MORE_STEPS, MORE_S)
            timing = replace(timing, step_s=step_s, step_computes=step_computes)
    few = observations if observations is not None and observations.nbytes <= OBSERVATIONS_BYTES else None
    return Look(spec, timing, observations=few, facts=facts, remarks=remarks), batch


def _odd(batch: BatchedEnv, spec: EnvironmentSpec, reset_s: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The facts of a batch of one environment whose resets take ``reset_s``, and a line for what kept them
    from being complete.
    """
    remarks: list[str] = []
    if reset_s >= SLOW_RESET_S:
        remarks.append(f"a reset takes {reset_s:.1f} s: what its seeds do was not looked at")
    facts = facts_of(batch, remarks.append, resets=not remarks)
    try:
        facts |= goal_facts(batch, spec.id, spec.obs_parts)
    except EnvironmentFailure as error:
        remarks.append(failed_later(error))
    return facts, tuple(dict.fromkeys(remarks))


def timed(one: BatchedEnv) -> Timing:
    """Reset and step a batch of one environment, and take the times."""
    began_s, began_cpu_s = served_s(), time.process_time()
    one.reset(seed=0)
    reset_s = served_s() - began_s
    step_s, step_computes = _usual_step(one, TIMED_STEPS, TIMED_S)
    computes = (time.process_time() - began_cpu_s) / max(served_s() - began_s, 1e-9)
    return Timing(one.backend, reset_s=reset_s, step_s=step_s, step_computes=step_computes, computes=computes)


def _usual_step(one: BatchedEnv, most: int, most_s: float) -> tuple[float, float]:
    """Seconds and CPU seconds of the median of at most ``most`` steps in ``most_s``; of one at least."""
    steps: list[tuple[float, float]] = []
    until_s = time.monotonic() + most_s
    while not steps or (len(steps) < most and time.monotonic() < until_s):
        began_s, cpu_s = served_s(), time.process_time()
        one.step(one.random_actions())
        steps.append((served_s() - began_s, time.process_time() - cpu_s))
    return statistics.median_low(steps)


def fault_of(
    env_id: str, env_kwargs: Mapping[str, Any], batch: BatchedEnv
) -> tuple[NDArray[Any] | None, str, float]:
    """Reset an environment, step it once with a random action, and reset it again, as samplers do. Where it
    gives action masks, they are read from then on.

    Args:
        env_id: its name in messages.
        env_kwargs: arguments of its constructor.
        batch: of one environment; closed if it fails.

    Returns:
        The three observations, ``[3, *obs_shape]``, and "", or None and why it cannot be trained in: one
        line with the user's file and line; and the seconds of the first reset or step, whichever took longer.
    """
    first_call_s = 0.0
    try:
        began_s = served_s()
        first, info = batch.reset()
        first_call_s = served_s() - began_s
        if batch.gives_masks(info):
            batch.read_masks()
            first, _ = batch.reset()
        began_s = served_s()
        seen = [first.copy(), batch.step(batch.random_actions())[0].copy()]
        first_call_s = max(first_call_s, served_s() - began_s)
        return np.concatenate([*seen, batch.reset()[0]]), "", first_call_s
    except EnvironmentFailure as error:
        close(batch)
        choice = choose(env_id, env_kwargs)
        if engine_of(choice.backend).one_by_one:
            env = choice.make_one(0)
            try:
                for layer in (_without_passive(env), without_limit(env)):
                    _Trial(env_id, layer).run()
            except InvalidEnvironment as fault:
                return None, str(fault), first_call_s
            finally:
                close(env)
        return None, str(error).splitlines()[0], first_call_s


def _without_passive(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """What is inside those of Gymnasium's wrappers that pass on all that they are given and get. Others may
    adapt the interface, so that what is inside alone is no environment.
    """
    while isinstance(env, gymnasium.Wrapper) and type(env) in PASSIVE:
        env = env.env
    return env


class _Trial:
    """Finds what is wrong with one environment, as it is with its wrappers."""

    def __init__(self, env_id: str, env: gymnasium.Env[Any, Any]) -> None:
        self.env_id, self.env = env_id, env

    def run(self) -> None:
        """Raise InvalidEnvironment for the first violation of Gymnasium's interface."""
        result = self._call("reset", RESET, seed=0)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self._refuse("reset", f"returned {_shown(result)}; {RESET}")
        self._check_observation("reset", result[0])
        result = self._call("step", STEP, self.env.action_space.sample())
        if isinstance(result, tuple) and len(result) == 4:
            self._refuse("step", f"returned 4 values, as in Gym before 0.26; {STEP}")
        if not isinstance(result, tuple) or len(result) != 5:
            self._refuse("step", f"returned {_shown(result)}; {STEP}")
        self._check_observation("step", result[0])
        if not _is_reward(result[1]):
            self._refuse("step", f"returned the reward {shown(result[1])}; {expected_reward(result[1])}")

    def _call(self, name: str, expected: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self.env, name)(*arguments, **named)
        except NotImplementedError as error:
            if not is_users(place_of(error).rpartition(":")[0]):
                self._refuse(name, f"is not defined; {expected}")
            self._refuse(name, f"raised {in_one_line(error)}", place_of(error))
        except BaseException as error:
            let_interrupts_pass(error)
            trace = error.__traceback__
            if isinstance(error, TypeError) and trace and trace.tb_next is None:  # nobody has taken the call
                self._refuse(name, f"was refused: {error}; {expected}")
            self._refuse(name, f"raised {in_one_line(error)}", place_of(error))

    def _check_observation(self, name: str, obs: Any) -> None:
        space = self.env.observation_space
        try:
            fits = space.contains(obs) or not isinstance(space, gymnasium.spaces.Box)
        except Exception:
            fits = False
        if fits:
            return
        try:
            shape = np.shape(obs)
        except Exception:  # of what is no array; the batch's own words name it
            return
        if shape != space.shape:
            expected = f"observation_space has {space.shape}"
            self._refuse(name, f"returned an observation of shape {shape}; {expected}")
        if not _is_finite(obs):
            self._refuse(name, f"returned an observation that is not finite: {_shown(obs)}")

    def _refuse(self, name: str, what: str, place: str = "") -> None:
        place = place or self._definition(name)
        at = f"{place}: " if place else ""
        raise InvalidEnvironment(f"{self.env_id}: {at}{name} {what}") from None

    def _definition(self, name: str) -> str:
        """``file:line`` of a method, or of the class, of the outermost layer of the user's."""
        layer = self.env
        while True:
            place = definition_of(getattr(type(layer), name, None)) or definition_of(type(layer))
            if place or not isinstance(layer, gymnasium.Wrapper):
                return place
            layer = layer.env


def _is_reward(value: Any) -> bool:
    try:
        return math.isfinite(reward_of(value))
    except WrongReturn:
        return False


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(np.asarray(value, np.float64)).all())
    except (OverflowError, TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}" if value.size > 8 else np.array2string(value)
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
