"""An environment's own spaces as plain data, for programs that act in it without the engine's adaptation; and
their form in words, which all environments of a run have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from spreeze_zmq.base.errors import InvalidEnvironment

#: The largest number of uint8, and of a pixel unless its space declares a smaller one.
BYTE_MAX = 255
#: The most choices of all discrete numbers of an action, or of a part of an observation, together: networks
#: have a number for each.
MOST_CHOICES = 1_000_000


def action_start(space: Any) -> tuple[int, ...]:
    """The number that each discrete action of a Gymnasium space counts from; empty if all count from 0."""
    start = np.ravel(getattr(space, "start", 0))
    return tuple(start.tolist()) if start.any() else ()


def obs_parts(space: Any) -> tuple[dict[str, Any], ...]:
    """The parts of which ``gymnasium.spaces.flatten`` makes one vector, in order.

    Each has its ``path`` in the observation and its ``shape``; of discrete ones, which become one-hot,
    ``sizes`` and ``start`` too; of uint8 ``max``, the largest number that their space declares, where it is
    below ``BYTE_MAX``, and of images of it ``pixels``. None for a Box, which is not flattened, and where
    there is a part of another kind, such as a Text.
    """
    from gymnasium.spaces import Box

    if isinstance(space, Box):
        return ()
    try:
        return tuple(_parts(space, []))
    except TypeError:
        return ()


def members(space: Any) -> list[tuple[Any, Any]]:
    """The keys and spaces of a Dict, the numbers and spaces of a Tuple."""
    parts = space.spaces
    return list(parts.items() if isinstance(parts, Mapping) else enumerate(parts))


def _parts(space: Any, path: list[str | int]) -> Iterator[dict[str, Any]]:
    """Raises TypeError for another kind of space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in members(space):
            if not isinstance(key, str | int):
                raise TypeError(f"{key!r} is no name")
            yield from _parts(part, [*path, key])
    elif isinstance(space, spaces.Discrete):
        yield {"path": path, "shape": [], "sizes": [int(space.n)], "start": [int(space.start)]}
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, start = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        yield {"path": path, "shape": list(space.shape), "sizes": sizes, "start": start}
    elif isinstance(space, spaces.Box | spaces.MultiBinary):
        is_image = space.dtype == np.uint8 and len(space.shape) == 3 and 0 not in space.shape
        pixels = {"pixels": True} if is_image else {}
        most = {"max": declared} if (declared := declared_max(space)) else {}
        yield {"path": path, "shape": list(space.shape), **pixels, **most}
    else:
        raise TypeError(f"a {type(space).__name__} is not described")


def declared_max(space: Any) -> int | None:
    """``obs_max`` of a Box."""
    most = int(space.high.max(initial=0)) if space.dtype == np.uint8 else 0
    return most if 0 < most < BYTE_MAX else None


def num_choices(space: Any) -> int:
    """Those of all numbers of a Discrete or MultiDiscrete together."""
    return sum(map(int, np.ravel(space.n if hasattr(space, "n") else space.nvec)))


# --- in words


def form_of(observation: Any, action: Any) -> dict[str, str]:
    """The ``observations`` and ``actions`` of an environment, by its own spaces; equal where one policy fits
    both. Bounds of observations may differ, but for those by which images are scaled.
    """
    from gymnasium import spaces

    if not (said := "; ".join(map(part_in_words, obs_parts(observation)))):
        flat: Any = observation if isinstance(observation, spaces.Box) else spaces.flatten_space(observation)
        said = f"{flat.dtype} {list(flat.shape)}" + (f" up to {most}" if (most := declared_max(flat)) else "")
    plain = isinstance(action, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    return {"observations": said, "actions": str(action) if plain else type(action).__name__}


def part_in_words(part: Mapping[str, Any]) -> str:
    """A part of an observation, as ``obs_parts`` describes it: its path, its shape and its kind."""
    path, shape = part.get("path"), part.get("sizes") or part.get("shape")
    pixels = " of pixels" if part.get("pixels") else ""
    most = f" up to {part['max']}" if part.get("max") else ""
    start = f" from {part['start']}" if part.get("start") else ""
    return f"{'.'.join(map(str, path)) if isinstance(path, list) else path} {shape}{pixels}{most}{start}"


def difference(form: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """How a form differs from the expected one, in words; empty if it does not."""
    unlike = [name for name, words in form.items() if words != expected[name]]
    return f"{unlike[0]} {form[unlike[0]]:.300}, not {expected[unlike[0]]:.300}" if unlike else ""


def check_alike(env_id: str, row: int, form: Mapping[str, str], first: Mapping[str, str]) -> None:
    """Raise InvalidEnvironment unless the environment of a row has the form of the ``first`` one."""
    if said := difference(form, first):
        raise InvalidEnvironment(
            f"{env_id}: environment {row} was made with other spaces than the first one, {said}: one policy "
            "acts in all of them"
        )
