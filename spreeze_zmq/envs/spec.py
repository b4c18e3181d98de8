"""The description of an environment in a plan: shapes, dtypes, bounds and the time limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.rollout import LARGEST
from spreeze_zmq.envs.bounds import action_limits, loose_bounds, rounded_inward
from spreeze_zmq.envs.forms import MOST_CHOICES, action_start, declared_max, num_choices, obs_parts
from spreeze_zmq.envs.spec_fields import check_spec

#: Fields that are left out of the plain data where they are empty.
OWN_SPACES = frozenset(
    {"obs_max", "action_start", "action_limits", "obs_parts", "loose_bounds", "action_mask"}
)

#: The kinds of action spaces that there are.
ActionKind = Literal["box", "discrete", "multi_discrete"]


@dataclass(frozen=True, eq=False)
class EnvironmentSpec:
    """One environment as learners, samplers and the launcher need to know it.

    Attributes:
        id: the name in the topology, such as ``my_package.my_module:Reach-v0``, with the version: ``Ant-v5``.
        kwargs: keyword arguments of its constructor.
        obs_shape: shape of one observation; Dict and Tuple observations are flattened to one vector.
        obs_dtype: ``"uint8"`` if the environment gives uint8, else ``"float32"``, to which rollouts cast.
        action_kind: ``"box"``, ``"discrete"`` or ``"multi_discrete"``.
        action_shape: shape of one action: ``(A,)``; ``()`` for discrete ones.
        action_low: ``[A]`` float32 lower bounds of a box, rounded inward from its own dtype; ``None`` unless
            all bounds are finite and at most ``LARGEST``: larger ones are taken for none.
        action_high: the upper bounds likewise.
        action_sizes: number of choices of each discrete action: one entry for ``"discrete"``, ``A`` for
            ``"multi_discrete"``, none for a box. Actions count from 0.
        action_start: the number that the environment itself counts each discrete action from; empty if all
            count from 0.
        max_episode_steps: the time limit at which episodes are truncated; ``None`` if there is none.
        obs_parts: of an observation that is flattened to one vector, see :func:`obs_parts`; empty for a Box.
        described: the spec comes from the topology, and no Python program makes the environment.
        loose_bounds: the first bounds of a box that count as none, in words; empty if all of them count.
        action_limits: the lowest and highest value of each number of a box that is bounded in part, None
            where it is not; empty for all others.
        action_mask: it says at each step which actions are legal, and policies choose among these.
        obs_max: the largest number that a space of uint8 declares, by which networks scale it; None for
            ``BYTE_MAX``, and for float32.
    """

    id: str
    kwargs: Mapping[str, Any]
    obs_shape: tuple[int, ...]
    obs_dtype: Literal["float32", "uint8"]
    action_kind: ActionKind
    action_shape: tuple[int, ...] = ()
    action_low: NDArray[np.float32] | None = None
    action_high: NDArray[np.float32] | None = None
    action_sizes: tuple[int, ...] = ()
    max_episode_steps: int | None = None
    described: bool = False
    action_start: tuple[int, ...] = ()
    obs_parts: tuple[Mapping[str, Any], ...] = ()
    loose_bounds: str = ""
    action_mask: bool = False
    action_limits: tuple[Sequence[float | None], ...] = ()
    obs_max: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvironmentSpec) and self.to_dict() == other.to_dict()

    @property
    def num_actions(self) -> int:
        """Number of choices of a discrete action.

        Raises:
            InvalidEnvironment: actions are of another kind.
        """
        if self.action_kind != "discrete":
            raise InvalidEnvironment(
                f"env.num_actions is for discrete action spaces, this environment's is {self.action_kind}"
            )
        return self.action_sizes[0]

    @property
    def num_choices(self) -> int:
        """Flags of an action mask: one for each choice of each discrete action."""
        return sum(self.action_sizes)

    def spans_of(self, key: str = "") -> tuple[slice, ...]:
        """Where an observation that is flattened has the parts with this key, in order: ``"pixels"`` of
        images, ``"sizes"`` of one-hot choices; by default all parts.
        """
        sizes = [
            sum(part["sizes"]) if "sizes" in part else math.prod(part["shape"]) for part in self.obs_parts
        ]
        if self.obs_shape != (sum(sizes),):
            return ()
        ends = itertools.accumulate(sizes, initial=0)
        spans = zip(self.obs_parts, itertools.pairwise(ends), strict=True)
        return tuple(slice(*span) for part, span in spans if not key or part.get(key))

    @property
    def has_bounds(self) -> bool:
        """Whether actions are a box with finite bounds."""
        return self.action_low is not None and self.action_high is not None

    def check_actions(self, who: str, acts_in: Collection[str], needs_bounds: bool) -> None:
        """Raise InvalidEnvironment that ``who`` cannot act here, unless actions are of one of the kinds
        ``acts_in``, and a box has finite bounds if ``needs_bounds``.
        """
        if self.action_kind not in acts_in:
            raise InvalidEnvironment(
                f"{who} acts in {' or '.join(acts_in)} action spaces, "
                f"this environment's is {self.action_kind}"
            )
        if self.action_kind == "box" and needs_bounds and not self.has_bounds:
            raise InvalidEnvironment(
                f"{who} scales its actions to finite bounds of at most {LARGEST:g}, this environment has "
                f"{self.loose_bounds or 'none'}; give its action_space bounds that it can reach"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON and msgpack can hold; ``from_dict`` is its inverse."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["kwargs"] = dict(self.kwargs)
        for name, value in data.items():
            if isinstance(value, tuple | np.ndarray):
                data[name] = value.tolist() if isinstance(value, np.ndarray) else list(value)
        return {name: value for name, value in data.items() if value or name not in OWN_SPACES}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EnvironmentSpec:
        """The spec that ``to_dict`` described; keys that a newer release has added are passed over.

        Raises:
            KeyError, ValueError: it is none; files and messages hold what others wrote.
        """
        check_spec(data)
        known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in known.items()}
        for name in ("action_low", "action_high"):
            plain[name] = None if plain[name] is None else np.asarray(plain[name], np.float32)
        return cls(**plain)


def spec_of(
    env_id: str,
    kwargs: Mapping[str, Any],
    observation_space: Any,
    action_space: Any,
    limit: int | None,
    own_spaces: tuple[Any, Any] | None = None,
) -> EnvironmentSpec:
    """The spec of an environment with these Gymnasium spaces; ``own_spaces`` are those of observations and
    actions before its engine adapts them.

    Raises:
        InvalidEnvironment: no policy can act in these spaces; names the wrapper that converts them.
    """
    shape, dtype = _observation(env_id, observation_space)
    observed, acted = own_spaces or (observation_space, action_space)
    found = {
        **_action(env_id, action_space),
        "action_start": action_start(acted),
        "obs_parts": obs_parts(observed),
        "obs_max": declared_max(observation_space),
    }
    return EnvironmentSpec(env_id, dict(kwargs), shape, dtype, max_episode_steps=limit, **found)


def _observation(env_id: str, space: Any) -> tuple[tuple[int, ...], Literal["float32", "uint8"]]:
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise InvalidEnvironment(
            f"{env_id}: its observations are a {type(space).__name__}, but policies here take a Box"
            " (convert them with gymnasium.wrappers.TransformObservation)"
        )
    if 0 in space.shape or space.shape == ():
        raise InvalidEnvironment(
            f"{env_id}: its observations have the shape {space.shape}, but at least one number is needed"
            " (reshape it with gymnasium.wrappers.ReshapeObservation)"
        )
    return tuple(int(n) for n in space.shape), "uint8" if space.dtype == np.uint8 else "float32"


def _action(env_id: str, space: Any) -> dict[str, Any]:
    """The spec's fields about actions."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _discrete(env_id, space)
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise InvalidEnvironment(
            f"{env_id}: its actions are {space}, but policies here act in a Box of floats, a Discrete, a"
            " MultiDiscrete or a row of a MultiBinary (convert them with gymnasium.wrappers.TransformAction)"
        )
    box = {"action_kind": "box", "action_shape": _vector(env_id, space.shape)}
    low, high = rounded_inward(space.low, space.high)
    if loose := loose_bounds(space.low, space.high):
        return {**box, "loose_bounds": loose, "action_limits": action_limits(space.low, space.high)}
    if not (low < high).all():
        narrow = " in float32, in which policies act" if (space.low < space.high).all() else ""
        raise InvalidEnvironment(
            f"{env_id}: its lowest actions {space.low.tolist()} are not all below its highest"
            f" {space.high.tolist()}{narrow} (numbers that can be one alone are left out with"
            " gymnasium.wrappers.TransformAction, which puts them back)"
        )
    return {**box, "action_low": low, "action_high": high}


def _discrete(env_id: str, space: Any) -> dict[str, Any]:
    if np.any(space.start):
        raise InvalidEnvironment(
            f"{env_id}: its discrete actions count from {np.asarray(space.start).tolist()}, but policies here"
            " from 0 (shift them with gymnasium.wrappers.TransformAction)"
        )
    if num_choices(space) > MOST_CHOICES:
        raise InvalidEnvironment(
            f"{env_id}: its actions are {space}, but policies here choose among {MOST_CHOICES:,} at most"
            " (give a MultiDiscrete of its digits by gymnasium.wrappers.TransformAction)"
        )
    if space.shape == ():
        return {"action_kind": "discrete", "action_sizes": (int(space.n),)}
    shape, sizes = _vector(env_id, space.shape), tuple(space.nvec.tolist())
    return {"action_kind": "multi_discrete", "action_shape": shape, "action_sizes": sizes}


def _vector(env_id: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape``, if it is that of a vector with at least one number."""
    if len(shape) != 1 or shape[0] == 0:
        raise InvalidEnvironment(
            f"{env_id}: its actions have the shape {shape}, but policies here give a vector (flatten them by"
            f" gymnasium.wrappers.TransformAction(env, lambda action: action.reshape({shape}), SPACE))"
        )
    return (int(shape[0]),)
