"""Spaces of single environments made to fit a batch: observations as one array, discrete actions from 0."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.wrappers import FlattenObservation, TransformAction

from spreeze_zmq.errors import InvalidEnvironment


def fitted(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment itself where its spaces fit, else wrapped.

    Observations other than a Box (a Dict or Tuple of Boxes and Discretes, a bare Discrete) are flattened to
    one vector by ``gymnasium.spaces.flatten``: the parts in order, discrete ones as one-hot. Discrete actions
    that count from another number than 0 are shifted.

    Raises:
        InvalidEnvironment: there are no spaces, or the observations have no fixed size.
    """
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            raise InvalidEnvironment(f"{env_id}: it has no {name} (set self.{name} in its __init__)")
    return _from_zero(_flattened(env_id, env))


def _flattened(env_id: str, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    space = env.observation_space
    if isinstance(space, Box):
        return env
    if not space.is_np_flattenable:
        raise InvalidEnvironment(
            f"{env_id}: its observations are a {type(space).__name__}, which does not flatten to a vector of"
            " fixed size (convert them with gymnasium.wrappers.TransformObservation)"
        )
    return FlattenObservation(env)


def _from_zero(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    space = env.action_space
    if not isinstance(space, Discrete | MultiDiscrete) or not np.any(space.start):
        return env
    start, shifted = space.start, copy.deepcopy(space)
    shifted.start = start * 0
    return TransformAction(env, lambda action: action + start, shifted)
