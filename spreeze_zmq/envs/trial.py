"""Tries out an environment before a run; names a mistake and its file and line in one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
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
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.failures import close
from spreeze_zmq.envs.in_process import choose, numbered

_RESET = "reset(self, *, seed=None, options=None) returns (observation, info)"
_STEP = "step(self, action) returns (observation, reward, terminated, truncated, info)"


def fault_of(
    env_id: str, env_kwargs: Mapping[str, Any], batch: BatchedEnv
) -> tuple[NDArray[Any] | None, str]:
    """Reset an environment, step it once with a random action, and reset it again, as samplers do.

    Args:
        env_id: its name in messages.
        env_kwargs: arguments of its constructor.
        batch: of one environment; closed if it fails.

    Returns:
        The three observations, ``[3, *obs_shape]``, and "", or None and why it cannot be trained in: one
        line with the user's file and line.
    """
    try:
        seen = [batch.reset()[0].copy()]
        seen.append(batch.step(batch.action_space.sample())[0].copy())
        return np.concatenate([*seen, batch.reset()[0]]), ""
    except EnvironmentFailure as error:
        close(batch)
        engine = choose(env_id, env_kwargs)
        if engine_of(engine.backend).one_by_one and engine.source is not None:
            env = engine.source.make_one(numbered(env_kwargs, 0))
            try:
                _Trial(env_id, env.unwrapped).run()
            except InvalidEnvironment as fault:
                return None, str(fault)
            finally:
                close(env)
        return None, str(error).splitlines()[0]


class _Trial:
    """Finds what is wrong with one environment, without its wrappers."""

    def __init__(self, env_id: str, env: gymnasium.Env[Any, Any]) -> None:
        self.env_id, self.env = env_id, env

    def run(self) -> None:
        """Raise InvalidEnvironment for the first violation of Gymnasium's interface."""
        result = self._call("reset", _RESET, seed=0)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self._refuse("reset", f"returned {_shown(result)}; {_RESET}")
        self._check_observation("reset", result[0])
        result = self._call("step", _STEP, self.env.action_space.sample())
        if isinstance(result, tuple) and len(result) == 4:
            self._refuse("step", f"returned 4 values, as in Gym before 0.26; {_STEP}")
        if not isinstance(result, tuple) or len(result) != 5:
            self._refuse("step", f"returned {_shown(result)}; {_STEP}")
        self._check_observation("step", result[0])
        if np.shape(result[1]) != () or not _is_finite(result[1]):
            self._refuse("step", f"returned the reward {result[1]!r}; expected a finite number")

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
            if isinstance(error, TypeError) and trace and trace.tb_next is None:  # the call was refused
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
        shape = np.shape(obs)
        if shape != space.shape:
            expected = f"observation_space has {space.shape}"
            self._refuse(name, f"returned an observation of shape {shape}; {expected}")
        if not _is_finite(obs):
            self._refuse(name, f"returned an observation that is not finite: {_shown(obs)}")

    def _refuse(self, name: str, what: str, place: str = "") -> None:
        place = place or definition_of(getattr(type(self.env), name, None)) or definition_of(type(self.env))
        raise InvalidEnvironment(f"{self.env_id}: {place}: {name} {what}") from None


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(np.asarray(value, np.float64)).all())
    except (TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}" if value.size > 8 else np.array2string(value)
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
