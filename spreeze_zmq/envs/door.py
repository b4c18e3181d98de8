"""The door to an environment: every value that its ``step`` is given, and that it returns, passes here."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import odd_number, within_limits
from spreeze_zmq.envs.forms import members

#: Classes of a reward that are taken as they are.
REWARDS = frozenset({float, np.float64, np.float32})

#: What an environment's own methods are.
STEP = "step(self, action) returns (observation, reward, terminated, truncated, info)"
RESET = "reset(self, *, seed=None, options=None) returns (observation, info)"


class WrongReturn(ValueError):
    """An environment returned something else than its spaces or Gymnasium's interface promise; the message
    says what came and what was expected.
    """


class Given:
    """Makes the actions that environments are given: copies, in their space's own dtype, within its bounds.

    Args:
        space: of one action; discrete ones count from 0.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.dtype: np.dtype[Any] = np.dtype(space.dtype)
        self.shape = space.shape or ()
        self._bounds: tuple[NDArray[Any], NDArray[Any]] | None = None
        if isinstance(space, spaces.Box) and (np.isfinite(space.low) | np.isfinite(space.high)).any():
            self._bounds = space.low.copy(), space.high.copy()  # an environment may change its own

    def copied(self, actions: NDArray[Any], num: int) -> NDArray[Any]:
        """A copy of ``actions`` for ``num`` environments in the space's dtype.

        Raises:
            ValueError: they have another shape, or are floats where integers are taken.
        """
        if actions.__class__ is np.ndarray and actions.dtype is self.dtype:
            given = actions.copy()
        else:
            with np.errstate(over="ignore"):  # what becomes infinite is clipped
                given = np.array(actions, self.dtype)
            if self.dtype.kind in "iu" and np.asarray(actions).dtype.kind not in "iub":
                raise ValueError(f"integer actions expected, got {np.asarray(actions).dtype}")
        if given.shape[0] != num or given.shape[1:] != self.shape:
            raise ValueError(f"actions of shape {(num, *self.shape)} expected, got {given.shape}")
        return given

    def __call__(self, actions: NDArray[Any], num: int) -> NDArray[Any]:
        """As ``copied``, and clipped to the bounds of a Box, which a policy's float32 may miss."""
        given = self.copied(actions, num)
        if self._bounds is not None:
            np.maximum(given, self._bounds[0], out=given)
            np.minimum(given, self._bounds[1], out=given)
        return given


class Observed:
    """Reads the observations of one environment; all but a Box are flattened to one vector as
    ``gymnasium.spaces.flatten`` does it.

    Args:
        own: the environment's own observation space.

    Attributes:
        space: of an observation that was read, a Box.
    """

    def __init__(self, own: Space[Any]) -> None:
        self.space: Any = own if isinstance(own, spaces.Box) else spaces.flatten_space(own)
        self._read = _reader(own, "the observation")
        self._is_flattened = self.space is not own
        self._shape, self._dtype = (None if self._is_flattened else own.shape), np.dtype(self.space.dtype)

    def __call__(self, obs: Any) -> NDArray[Any]:
        """``[*space.shape]`` numbers that the space's dtype holds.

        Raises:
            WrongReturn: it is of another structure, shape or kind.
        """
        if obs.__class__ is np.ndarray and obs.dtype is self._dtype and obs.shape == self._shape:
            return obs
        read = self._read(obs)
        if not self._is_flattened:
            return read[0]
        return np.concatenate([part.ravel() for part in read], dtype=self.space.dtype)

    def after_reset(self, returned: Any) -> tuple[NDArray[Any], Any]:
        """The observation and info that ``reset`` returned, once they are checked. Raises WrongReturn."""
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise WrongReturn(f"{shown(returned)}; {RESET}")
        return self(returned[0]), returned[1]


def five(returned: Any) -> tuple[Any, ...]:
    """What ``step`` returned, if it is five values. Raises WrongReturn."""
    if isinstance(returned, tuple | list) and len(returned) == 5:
        return tuple(returned)
    old = ", as in Gym before 0.26" if isinstance(returned, tuple) and len(returned) == 4 else ""
    raise WrongReturn(f"{shown(returned)}{old}; {STEP}")


def reward_of(value: Any) -> float:
    """A reward as a float: any real number, or an array of one. Raises WrongReturn."""
    try:
        if isinstance(value, numbers.Number | np.bool_) and not isinstance(value, np.complexfloating):
            return float(value)  # type: ignore[arg-type]
        array = _plain(value)
        if array.size == 1 and array.dtype.kind in "biuf":
            return float(array.item())
    except Exception:  # an object of the user's may raise anything
        pass
    raise WrongReturn(f"the reward {shown(value)}, {expected_reward(value)}")


def expected_reward(value: Any) -> str:
    """What a reward is, to whom it may be ``value``."""
    several = isinstance(value, np.ndarray) and value.size > 1
    hint = " (mo_gymnasium.wrappers.LinearReward makes one of several)" if several else ""
    return f"expected a finite number{hint}"


def flag(value: Any, name: str) -> bool:
    """``terminated`` or ``truncated``: a truth value, 0 or 1, or an array of one. Raises WrongReturn."""
    if value.__class__ in (bool, np.bool_):
        return bool(value)
    try:
        array = _plain(value)
        if array.size == 1 and array.dtype.kind in "biuf" and (number := array.item()) in (0, 1):
            return bool(number)
    except Exception:
        pass
    raise WrongReturn(f"{name} = {shown(value)}, expected True or False")


def fitting(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """A value as an array of ``shape`` whose numbers ``dtype`` holds: rounding to fewer digits is allowed,
    another number is not.

    Raises:
        WrongReturn: it is none; ``what`` names it.
    """
    expected = f"expected {dtype} of shape {shape}"
    try:
        array = _plain(value)
    except Exception as error:
        raise WrongReturn(f"{what} {shown(value)}, {expected}: {error}") from None
    if array.dtype.kind not in "biuf":
        of = "" if array.dtype.kind == "O" else f" of {array.dtype}"
        raise WrongReturn(f"{what} {shown(value)}{of}, {expected}")
    if array.shape != shape:
        raise WrongReturn(f"{what} {shown(value)} of shape {array.shape}, {expected}")
    if array.dtype == dtype:
        return array
    if dtype.kind == "f" and (odd := odd_number(array)):
        raise WrongReturn(f"{what} {shown(value)}, which holds {odd}")
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    held = np.isfinite(cast).all() if dtype.kind == "f" else np.array_equal(cast, array)
    if not held:
        raise WrongReturn(f"{what} {shown(value)} of {array.dtype}, which {dtype} cannot hold")
    return cast


def shown(value: Any) -> str:
    """A value in a few words."""
    try:
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O" or value.size > 8:
                return f"an array of shape {value.shape} and dtype {value.dtype}"
            return " ".join(np.array2string(value, threshold=8, precision=4).split())
        if value is None or isinstance(value, bool | numbers.Number | str | np.generic):
            return f"{value!r:.60}"
        if isinstance(value, tuple):
            return f"{len(value)} values"
        if isinstance(value, list) and len(value) <= 8:
            return f"{value!r:.60}"
    except Exception:
        pass
    return f"a {type(value).__name__}"


def _plain(value: Any) -> NDArray[Any]:
    """A value as an array. Raises whatever the conversion does, and ValueError for masked entries."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError("some of its entries are masked")
    return np.asarray(value)


#: Reads a part of an observation to vectors, which are joined.
_Reader = Callable[[Any], list[NDArray[Any]]]


def _reader(space: Space[Any], what: str) -> _Reader:
    """The function that checks and flattens observations of a space; ``what`` names them in messages."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _structure(space, what)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _choices(space, what)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return _numbers(space, what)
    return lambda value: [np.asarray(spaces.flatten(space, value)).ravel()]


def _numbers(space: spaces.Box | spaces.MultiBinary, what: str) -> _Reader:
    shape, dtype, is_binary = space.shape, np.dtype(space.dtype), isinstance(space, spaces.MultiBinary)

    def read(value: Any) -> list[NDArray[Any]]:
        array = fitting(value, shape, dtype, what)
        if is_binary and ((array != 0) & (array != 1)).any():
            raise WrongReturn(f"{what} {shown(value)}, expected only 0 and 1")
        return [array]

    return read


def _choices(space: spaces.Discrete | spaces.MultiDiscrete, what: str) -> _Reader:
    """One-hot, each choice after the other."""
    is_one = isinstance(space, spaces.Discrete)
    shape = space.shape or ()
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).astype(np.int64)
    start, ends = np.ravel(space.start).astype(np.int64), np.cumsum(sizes)

    def read(value: Any) -> list[NDArray[Any]]:
        one = value[0] if is_one and np.shape(value) == (1,) else value
        chosen = fitting(one, shape, np.dtype(np.int64), what).ravel() - start
        if ((chosen < 0) | (chosen >= sizes)).any():
            first, last = start.tolist(), (start + sizes - 1).tolist()
            limits = f"from {first[0]} to {last[0]}" if is_one else f"from {first} to {last}"
            raise WrongReturn(f"{what} {shown(value)}, expected {limits}")
        one_hot = np.zeros(ends[-1], space.dtype)
        one_hot[ends - sizes + chosen] = 1
        return [one_hot]

    return read


def _structure(space: spaces.Dict | spaces.Tuple[Any], what: str) -> _Reader:
    is_dict = isinstance(space, spaces.Dict)
    readers = [(key, _reader(part, f"{what}[{key!r}]")) for key, part in members(space)]

    def read(value: Any) -> list[NDArray[Any]]:
        if is_dict and isinstance(value, Mapping):
            if missing := [key for key, _ in readers if key not in value]:
                raise WrongReturn(f"{what} without its part {missing[0]!r}")
        elif is_dict or not isinstance(value, tuple | list) or len(value) != len(readers):
            wanted = "a dict" if is_dict else f"{len(readers)} values"
            raise WrongReturn(f"{what} {shown(value)}, expected {wanted}")
        parts: list[NDArray[Any]] = []
        for key, one in readers:
            parts += one(value[key])
        return parts

    return read


def odd_rows(obs: NDArray[Any], reward: NDArray[np.float64] | None = None) -> Iterator[tuple[int, str]]:
    """Yield each row that has a number that is not finite or beyond ``LARGEST``, and a description of it.

    Args:
        obs: ``[N, *obs]``.
        reward: ``[N]``.
    """
    for what, values in (("observation", obs), ("reward", reward)):
        if values is None or within_limits(values):
            continue
        for row, one in enumerate(values):
            if odd := odd_number(np.asarray(one)):
                yield row, f"the {what} {shown(np.asarray(one))}, which holds {odd}"
