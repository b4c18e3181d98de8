"""A Gymnasium environment as its batch takes it: without its time limit, and of spaces of a fixed size."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, flatdim, flatten
from gymnasium.wrappers import TimeLimit, TransformAction

from spreeze_zmq.base.errors import InvalidEnvironment, in_one_line
from spreeze_zmq.envs.forms import MOST_CHOICES, members, num_choices
from spreeze_zmq.envs.kept import spaces_in


def without_limit(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment inside an outermost ``TimeLimit``; one of a subclass, which may do more, stays."""
    return env.env if type(env) is TimeLimit else env


def spaces_of(env: gymnasium.Env[Any, Any]) -> tuple[Any, Any]:
    """The spaces of observations and actions."""
    return env.observation_space, env.action_space


def seed_spaces(env: gymnasium.Env[Any, Any], seed: int) -> None:
    """Give the spaces of an environment and its wrappers that have no generator yet one with this seed:
    Gymnasium would make it of noise, and what they draw would differ from run to run.
    """
    layer: Any = env
    with contextlib.suppress(Exception):  # spaces that are missing, or of a class of the user's
        while True:
            for space in (layer.observation_space, layer.action_space):
                if all(part._np_random is None for part in spaces_in(space)):
                    space.seed(seed)
            if not isinstance(layer, gymnasium.Wrapper):
                return
            layer = layer.env


def limits(env: gymnasium.Env[Any, Any]) -> Iterator[TimeLimit[Any, Any]]:
    """The time limits among the wrappers of an environment, the outermost first."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            yield env
        env = env.env


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Steps after which the lowest ``TimeLimit`` among the wrappers truncates; ``None`` without one."""
    return min((int(limit._max_episode_steps) for limit in limits(env)), default=None)


def given_limit(env_id: str, kwargs: Mapping[str, Any]) -> int | None:
    """The time limit among the arguments of an environment, -1 for none; None where they leave it to the
    environment.

    Raises:
        InvalidEnvironment: it is no number of steps.
    """
    steps = kwargs.get("max_episode_steps")
    whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if steps is not None and not (whole and (steps == -1 or steps > 0)):
        expected = "expected a whole number from 1 on, or -1 for no limit"
        raise InvalidEnvironment(f"{env_id}: max_episode_steps is {steps!r:.60}, {expected}")
    return None if steps is None else int(steps)


def raised(env: gymnasium.Env[Any, Any], steps: int | None) -> gymnasium.Env[Any, Any]:
    """The environment, whose own time limits are at least ``steps``: a lower one would end its episodes
    before the limit that it is given.
    """
    for limit in limits(env):
        limit._max_episode_steps = max(limit._max_episode_steps, steps or 0)
    return env


def _space(env_id: str, env: gymnasium.Env[Any, Any], name: str) -> gymnasium.Space[Any]:
    """One of the spaces of an environment.

    Raises:
        InvalidEnvironment: it has none.
    """
    space, said, how = None, "", f"set self.{name}"
    try:
        space = getattr(env, name)
    except AttributeError as error:
        if hasattr(type(env), name):  # a property
            said = f", {in_one_line(error)}"
        if isinstance(env, gymnasium.Wrapper):
            how = "super().__init__(env) sets what a Wrapper needs"
    if space is None:
        raise InvalidEnvironment(f"{env_id}: it has no {name}{said} ({how} in its __init__)")
    if not isinstance(space, gymnasium.Space):
        kind = f"{type(space).__module__}.{type(space).__qualname__}"
        raise InvalidEnvironment(
            f"{env_id}: its {name} is a {kind}, not a gymnasium.Space (such as gymnasium.spaces.Box)"
        )
    return space


def _unfit_part(
    space: gymnasium.Space[Any], path: tuple[Any, ...] = ()
) -> tuple[tuple[Any, ...], str] | None:
    """The first part of a Gymnasium space that does not flatten to a vector of fixed size.

    Returns:
        Its path in the observation and its class; None if the whole space flattens.
    """
    if isinstance(space, Dict | Tuple):
        if not members(space):
            return path, f"{type(space).__name__} without parts"
        found = [_unfit_part(part, (*path, key)) for key, part in members(space)]
        return next((part for part in found if part is not None), None)
    if isinstance(space, Discrete | MultiDiscrete) and num_choices(space) > MOST_CHOICES:
        return path, f"{type(space).__name__} of more than {MOST_CHOICES:,} choices"
    try:  # of a class of the user's, each method may raise
        size = (flatdim(space),)
        one: Any = flatten(space, copy.deepcopy(space).sample())  # the space's own generator is its owner's
        flattens = bool(space.is_np_flattenable) and np.shape(one) == size
    except Exception:
        flattens = False
    return None if flattens else (path, type(space).__name__)


def _why_unfit(space: gymnasium.Space[Any], path: tuple[str | int, ...], kind: str) -> str:
    """Why an observation space does not flatten, from ``_unfit_part``, and how to mend that."""
    if not path:
        how = "convert them with gymnasium.wrappers.TransformObservation"
        return f"its observations are a {kind}, which does not flatten to a vector of fixed size ({how})"
    name = ".".join(map(str, path))
    how = "leave it out with a wrapper, in a function that is named as 'module:function'"
    if isinstance(space, Dict):
        others = [key for key in space.spaces if key != path[0]]
        how += f": gymnasium.wrappers.FilterObservation(env, {others})"
        if "image" in others:
            how += ", or minigrid.wrappers.ImgObsWrapper for the image alone"
    return f"the part '{name}' of its observations is a {kind}, which does not flatten to numbers ({how})"


def fitted(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment, wrapped if needed, with discrete actions that count from 0; flags are choices of two.

    Raises:
        InvalidEnvironment: the environment has no spaces, or its observations have no fixed size.
    """
    observation, action = _space(env_id, env, "observation_space"), _space(env_id, env, "action_space")
    if not isinstance(observation, Box) and (unfit := _unfit_part(observation)):
        raise InvalidEnvironment(f"{env_id}: {_why_unfit(observation, *unfit)}")
    if isinstance(action, Discrete | MultiDiscrete) and np.any(action.start):
        start, shifted = action.start, copy.deepcopy(action)
        shifted.start = start * 0
        env = TransformAction(env, lambda choice: choice + start, shifted)
    elif isinstance(action, MultiBinary) and len(action.shape) == 1:
        flags, choices = action.dtype, MultiDiscrete(np.full(action.shape, 2))
        env = TransformAction(env, lambda choice: choice.astype(flags), choices)
    return env
