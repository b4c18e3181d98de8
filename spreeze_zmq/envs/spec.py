"""What the rest of the system knows of an environment: plain data that travels in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidEnvironment


@dataclass(frozen=True, eq=False)
class EnvironmentSpec:
    """One environment as learners, samplers and the launcher need to know it.

    Attributes:
        id: the name it was asked for by, such as ``HalfCheetah-v5`` or ``my_package.my_module:Reach-v0``.
        kwargs: keyword arguments of its constructor.
        obs_shape: shape of one observation.
        obs_dtype: ``"uint8"`` where the environment gives uint8, else ``"float32"``, to which rollouts cast.
        action_kind: ``"box"`` or ``"discrete"``.
        action_shape: shape of one action; ``()`` for discrete ones.
        action_low: ``action_shape`` float32, finite; ``None`` for discrete ones.
        action_high: likewise.
        num_actions: how many discrete actions; ``None`` for box.
        max_episode_steps: the time limit at which episodes are truncated; ``None`` where there is none.
    """

    id: str
    kwargs: Mapping[str, Any]
    obs_shape: tuple[int, ...]
    obs_dtype: Literal["float32", "uint8"]
    action_kind: Literal["box", "discrete"]
    action_shape: tuple[int, ...] = ()
    action_low: NDArray[np.float32] | None = None
    action_high: NDArray[np.float32] | None = None
    num_actions: int | None = None
    max_episode_steps: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvironmentSpec) and self.to_dict() == other.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON and msgpack can hold; ``from_dict`` is its inverse."""
        return {
            "id": self.id,
            "kwargs": dict(self.kwargs),
            "obs_shape": list(self.obs_shape),
            "obs_dtype": self.obs_dtype,
            "action_kind": self.action_kind,
            "action_shape": list(self.action_shape),
            "action_low": None if self.action_low is None else self.action_low.tolist(),
            "action_high": None if self.action_high is None else self.action_high.tolist(),
            "num_actions": self.num_actions,
            "max_episode_steps": self.max_episode_steps,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvironmentSpec:
        """The spec that ``to_dict`` described."""
        shapes = {name: tuple(data[name]) for name in ("obs_shape", "action_shape")}
        bounds = {
            name: None if data[name] is None else np.asarray(data[name], np.float32)
            for name in ("action_low", "action_high")
        }
        return cls(**{**data, **shapes, **bounds})


def spec_of(
    env_id: str, kwargs: Mapping[str, Any], observation_space: Any, action_space: Any, limit: int | None
) -> EnvironmentSpec:
    """The spec of an environment with these Gymnasium spaces.

    Raises:
        InvalidEnvironment: spaces that no policy here can act in, and what mends it.
    """
    shape, dtype = _observation(env_id, observation_space)
    return EnvironmentSpec(
        id=env_id,
        kwargs=dict(kwargs),
        obs_shape=shape,
        obs_dtype=dtype,
        max_episode_steps=limit,
        **_action(env_id, action_space),
    )


def _observation(env_id: str, space: Any) -> tuple[tuple[int, ...], Literal["float32", "uint8"]]:
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise InvalidEnvironment(
            f"{env_id}: its observations are a {type(space).__name__}, but policies here take a Box"
            " (wrap it with gymnasium.wrappers.FlattenObservation)"
        )
    if space.shape is None or 0 in space.shape or space.shape == ():
        raise InvalidEnvironment(
            f"{env_id}: its observations have the shape {space.shape}, but at least one number is needed"
            " (reshape it with gymnasium.wrappers.ReshapeObservation)"
        )
    return tuple(int(n) for n in space.shape), "uint8" if space.dtype == np.uint8 else "float32"


def _action(env_id: str, space: Any) -> dict[str, Any]:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise InvalidEnvironment(
                f"{env_id}: its discrete actions count from {int(space.start)}, but policies here from 0"
                " (shift them with gymnasium.wrappers.TransformAction)"
            )
        return {"action_kind": "discrete", "num_actions": int(space.n)}
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise InvalidEnvironment(
            f"{env_id}: its actions are {space}, but policies here act in a Box of floats or a Discrete"
            " (convert them with gymnasium.wrappers.TransformAction)"
        )
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise InvalidEnvironment(
            f"{env_id}: its actions have the shape {space.shape}, but policies here give a vector"
            " (flatten them with gymnasium.wrappers.TransformAction)"
        )
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise InvalidEnvironment(
            f"{env_id}: its actions are not bounded (low {low.tolist()}, high {high.tolist()}), but policies"
            " here scale to the bounds (give the environment an action_space with finite low and high)"
        )
    if not (low < high).all():
        raise InvalidEnvironment(
            f"{env_id}: its lowest actions {low.tolist()} are not all below its highest {high.tolist()}"
        )
    return {
        "action_kind": "box",
        "action_shape": tuple(int(n) for n in space.shape),
        "action_low": low,
        "action_high": high,
    }
