"""The form of an environment's spaces, in words: what all environments of a run have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.envs.spec import declared_max, obs_parts


def form_of(observation: Any, action: Any) -> dict[str, str]:
    """The ``observations`` and ``actions`` of an environment, by its own spaces; equal where one policy fits
    both. Bounds of observations may differ, but for those by which images are scaled.
    """
    if not (said := "; ".join(map(part_in_words, obs_parts(observation)))):
        flat = observation if isinstance(observation, spaces.Box) else spaces.flatten_space(observation)
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
