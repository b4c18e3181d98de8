"""An environment's own spaces in plain data, for programs that act in it without the engine's adaptation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def action_start(space: Any) -> tuple[int, ...]:
    """The number that each discrete action of a Gymnasium space counts from; empty if all count from 0."""
    start = np.ravel(getattr(space, "start", 0))
    return tuple(start.tolist()) if start.any() else ()


def obs_parts(space: Any) -> tuple[dict[str, Any], ...]:
    """The parts of which ``gymnasium.spaces.flatten`` makes one vector, in order.

    Each has its ``path`` in the observation and its ``shape``; of discrete ones, which become one-hot,
    ``sizes`` and ``start`` too. None for a Box, which is not flattened, and where there is a part of another
    kind, such as a Text.
    """
    from gymnasium.spaces import Box

    if isinstance(space, Box):
        return ()
    try:
        return tuple(_parts(space, []))
    except TypeError:
        return ()


def unfit_part(space: Any, path: tuple[str | int, ...] = ()) -> tuple[tuple[str | int, ...], str] | None:
    """The first part of a Gymnasium space that does not flatten to a vector of fixed size.

    Returns:
        Its path in the observation and its class; None if the whole space flattens.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found = [unfit_part(part, (*path, key)) for key, part in items]
        return next((part for part in found if part is not None), None)
    try:  # of a class of the user's, each method may raise
        size = (spaces.flatdim(space),)
        one: Any = spaces.flatten(space, space.sample())
        flattens = bool(space.is_np_flattenable) and np.shape(one) == size
    except Exception:
        flattens = False
    return None if flattens else (path, type(space).__name__)


def _parts(space: Any, path: list[str | int]) -> Iterator[dict[str, Any]]:
    """Raises TypeError for another kind of space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in items:
            if not isinstance(key, str | int):
                raise TypeError(f"{key!r} is no name")
            yield from _parts(part, [*path, key])
    elif isinstance(space, spaces.Discrete):
        yield {"path": path, "shape": [], "sizes": [int(space.n)], "start": [int(space.start)]}
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, start = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        yield {"path": path, "shape": list(space.shape), "sizes": sizes, "start": start}
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        yield {"path": path, "shape": list(space.shape)}
    else:
        raise TypeError(f"a {type(space).__name__} is not described")
