"""Played episodes as a new Minari dataset."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spreeze_zmq.base.errors import InputError, in_one_line
from spreeze_zmq.base.masks import NAME
from spreeze_zmq.data.dataset import minari, root

if TYPE_CHECKING:
    from spreeze_zmq.envs.recorded import OwnEpisode  # imports Gymnasium

#: The argument by which Minari keeps images exactly.
_EXACTLY = "jpeg_encoding"
#: A name as Minari takes it: parts with slashes between, the last one with a version.
_NAME = re.compile(r"(?:[-_\w]{2,}/(?:[-_\w]+/){0,2})?[-_\w]+?-v\d+")


def check_name(name: str) -> Path:
    """The folder that a new dataset of this name will have.

    Raises:
        InputError: Minari is not installed or too old, takes no such name, or there is one already.
    """
    package = minari()
    if _EXACTLY not in inspect.signature(package.create_dataset_from_buffers).parameters:
        raise InputError(
            f"--minari {name}: Minari {package.__version__} cannot keep images exactly: "
            "pip install -U 'minari>=0.5.4'"
        )
    if not _NAME.fullmatch(name):
        raise InputError(f"--minari {name}: expected a name with a version, as pendulum/expert-v0")
    if (folder := root() / name).exists():
        raise InputError(f"--minari {name}: {folder} is there already; take another name or version")
    return folder


def write(name: str, episodes: Sequence[OwnEpisode], env: Any, description: str) -> Path:
    """Write a dataset that Minari keeps under ``name``; returns its folder. Images are kept exactly.

    Args:
        name: as of :func:`check_name`.
        episodes: at least one.
        env: the Gymnasium environment, whose spaces the dataset names, and its registration if that is text.
        description: one line about it.

    Raises:
        InputError: Minari cannot store them.
    """
    folder = check_name(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an author and a link that it lacks
        try:
            buffers = [_buffer(episode) for episode in episodes]
            minari().create_dataset_from_buffers(
                name, buffers, **_about(env), description=description, **{_EXACTLY: False}
            )
        except Exception as error:  # spaces of the user's own make it raise anything
            raise InputError(f"--minari {name}: Minari cannot store it: {in_one_line(error)}") from None
    return folder


def _about(env: Any) -> dict[str, Any]:
    """The environment, or its spaces alone where its registration names a callable, which is no text."""
    try:
        if env.spec is not None:
            env.spec.to_json()
    except Exception:  # of arguments of the user's own it raises anything
        return {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"env": env}


def _buffer(episode: OwnEpisode) -> Any:
    length = len(episode.rewards)
    ends = np.arange(length) == length - 1
    return importlib.import_module("minari.data_collector").EpisodeBuffer(
        observations=episode.stacked("observations"),
        actions=episode.stacked("actions"),
        rewards=np.array(episode.rewards, np.float64),
        terminations=ends & episode.terminated,
        truncations=ends & (not episode.terminated),
        infos={NAME: episode.stacked("masks")} if episode.masks else None,
    )
