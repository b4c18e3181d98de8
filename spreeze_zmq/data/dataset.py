"""Minari datasets on this machine: found by name or folder, opened, and asked for their episodes."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import InputError, InvalidEnvironment, in_one_line
from spreeze_zmq.base.files import home
from spreeze_zmq.base.schema import show, suggestion
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.bounds import action_limits
from spreeze_zmq.envs.forms import action_start
from spreeze_zmq.envs.numbering import has_number, numbered

#: How the source of a dataset begins that Minari knows by name.
MINARI = "minari:"
#: Below a dataset's folder: the folder of its files, and what describes them.
DATA, METADATA = "data", "metadata.json"
_SPACES = ("observation_space", "action_space")
#: Keywords of an environment that change no reward.
_NO_MATTER = {"render_mode", "max_episode_steps", "width", "height", "camera_id", "camera_name"}
#: Wrappers that leave observations, actions and rewards as they are.
_PASSIVE = {
    *("HumanRendering", "OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "RecordVideo"),
    *("RenderCollection", "TimeLimit"),
}


def minari() -> Any:
    """The package. Raises InputError where it, or what it stores datasets with, is not installed."""
    try:
        importlib.import_module("h5py")
        return importlib.import_module("minari")
    except ImportError as error:
        raise InputError(
            f"this needs {error.name or 'minari'}, which is not installed: pip install 'spreeze_zmq[minari]'"
        ) from None


def root() -> Path:
    """The folder in which Minari keeps datasets. Raises NoHome."""
    written = os.environ.get("MINARI_DATASETS_PATH")
    return Path(written) if written else home() / ".minari" / "datasets"


def find(source: str, beside: Path) -> Path:
    """The folder of a dataset.

    Args:
        source: ``minari:NAME``, or the path of the folder.
        beside: the folder that a relative path begins from.

    Raises:
        InputError: there is none.
    """
    if not source.startswith(MINARI):
        folder = Path(os.path.abspath(beside / os.path.expanduser(source)))
        if (folder / DATA / METADATA).is_file():
            return folder
        meant = f'; write "{MINARI}{source}" for one that Minari keeps' if source in _names() else ""
        raise InputError(f"{folder} is no Minari dataset: it has no {DATA}/{METADATA}{meant}")
    name, known = source.removeprefix(MINARI), _names()
    if name not in known:
        hint = suggestion(name, known) if known else "there is none"
        got = f"minari download {name} gets one that is published"
        raise InputError(f"Minari has no dataset called {name} in {root()} ({hint}; {got})")
    return root() / name


def _names() -> list[str]:
    """The datasets that Minari keeps here; a name has at most a few parts."""
    depths = ("*", "*/*", "*/*/*", "*/*/*/*")
    found = (path for depth in depths for path in root().glob(f"{depth}/{DATA}/{METADATA}"))
    return sorted(path.parents[1].relative_to(root()).as_posix() for path in found)


def _registered(env: EnvironmentSpec) -> Any:
    """The registry's entry of an environment, whose name may have no version; None if it has none."""
    from spreeze_zmq.envs.source import find as find_environment  # imports Gymnasium

    try:
        return None if env.described else find_environment(env.id).registered
    except InvalidEnvironment:
        return None


def _plain(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as JSON gives them again: tuples are lists."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(kwargs), default=repr))
    return plain


def _wrapped_otherwise(recorded: Sequence[Any], registered: Any) -> str:
    """How the wrappers that a dataset names, as its JSON has them, are others than those of the environment's
    entry in the registry, in words; empty if none is that changes a transition.
    """
    named = [each.get("name") for each in recorded if isinstance(each, dict)]
    theirs = {name[:80]: None for name in named if isinstance(name, str) and name not in _PASSIVE}
    ours = {each.name: None for each in getattr(registered, "additional_wrappers", ())}
    through = [f"through {name}" for name in theirs if name not in ours]
    without = [f"without {name}" for name in ours if name not in {*theirs, *_PASSIVE}]
    said = ", ".join([*through, *without][:4])
    return f"recorded {said}, unlike run.env" if said else ""


def _acts_otherwise(space: Any, env: EnvironmentSpec) -> str:
    """How a dataset's actions count from another number, or lie in other bounds, than those of ``env``, in
    words; empty if they do not. Actions of another kind or shape are refused when they are read.
    """
    if env.action_kind != "box":
        zeros = (0,) * len(env.action_sizes)
        theirs, ours = action_start(space) or zeros, env.action_start or zeros
        said = f"recorded with actions that count from {show([*theirs])}, run.env's from {show([*ours])}"
        return said if theirs != ours else ""
    if not hasattr(space, "low") or space.shape != env.action_shape:
        return ""
    limits: Sequence[Any] = env.action_limits
    if env.action_low is not None and env.action_high is not None:
        limits = [*zip(env.action_low, env.action_high, strict=True)]
    bounds = _bounds(action_limits(space.low, space.high), space.shape[0])
    own = _bounds(limits, space.shape[0])
    other = np.flatnonzero(~np.isclose(bounds, own).all(1))
    if not other.size:
        return ""
    (low, high), (own_low, own_high) = bounds[other[0]], own[other[0]]
    said = f"recorded with action {other[0]} in [{low:g}, {high:g}]"
    return f"{said}, run.env's is in [{own_low:g}, {own_high:g}]"


def _bounds(limits: Sequence[Any], size: int) -> NDArray[np.float64]:
    """``[size, 2]``: the lowest and highest value of each number of a box, infinite where it has none."""
    found = np.array(limits or [[None, None]] * size, np.float64)
    return np.where(np.isnan(found), [-np.inf, np.inf], found)


@dataclass(frozen=True)
class Dataset:
    """A dataset that has been opened.

    Attributes:
        path: its folder.
        num_episodes: that it has.
        made_by: the environment's registration, as Gymnasium writes one; empty if it names none.
    """

    path: Path
    num_episodes: int
    made_by: Mapping[str, Any]
    _opened: Any

    @classmethod
    def open(cls, path: Path) -> Dataset:
        """Open the dataset in a folder. It may be anybody's: no environment that it names is made.

        Raises:
            InputError: Minari is not installed, or cannot read it.
        """
        package, files = minari(), path / DATA
        try:
            about = json.loads((files / METADATA).read_text(encoding="utf-8"))
            if missing := [name for name in _SPACES if not isinstance(about.get(name), str)]:
                raise ValueError(f"it does not say its {missing[0]}")
            opened, made_by = package.MinariDataset(str(files)), json.loads(about.get("env_spec") or "{}")
            return cls(path, int(opened.total_episodes), dict(made_by), opened)
        except ImportError as error:
            raise InputError(f"{path}: {error}") from None
        except Exception as error:  # a torn or odd file makes its readers raise anything
            raise InputError(f"{path} cannot be read as a Minari dataset: {in_one_line(error)}") from None

    def differs(self, env: EnvironmentSpec) -> str:
        """How its episodes' environment was another than ``env``, so that observations, actions or rewards
        may be others: in words, empty as far as the dataset says that it was the same.
        """
        acts = _acts_otherwise(self._opened.action_space, env)
        return ", and ".join(filter(None, (self._made_otherwise(env), acts)))

    def _made_otherwise(self, env: EnvironmentSpec) -> str:
        """How the registration of its environment was another than that of ``env``. Arguments with the
        environment's number differ within the run, too.
        """
        known = self.made_by.get("id")
        if not isinstance(known, str):
            return ""
        registered = _registered(env)
        own = env.id.rpartition(":")[2] if registered is None else registered.id
        if known != own:
            return f"recorded in {show(known)}, not {own}"
        given = env.kwargs if env.described else numbered(env.kwargs, 0)
        ours = _plain({**(registered.kwargs if registered is not None else {}), **given})
        theirs = self.made_by.get("kwargs")
        theirs = theirs if isinstance(theirs, dict) else {}
        other = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
        said = [
            f"{name[:80]} = {show(theirs[name])}" if name in theirs else f"no {name}"
            for name in other
            if name not in _NO_MATTER and not has_number(env.kwargs.get(name))
        ]
        made = f"recorded with {', '.join(said[:4])}, unlike run.env_kwargs" if said else ""
        wrappers = self.made_by.get("additional_wrappers")
        wrapped = _wrapped_otherwise(wrappers if isinstance(wrappers, list) else [], registered)
        return ", and ".join(filter(None, (made, wrapped)))

    def episodes(self, most: int | None = None) -> Iterator[Any]:
        """The first episodes in their order, as Minari gives them. Raises InputError for a damaged one."""
        number = self.num_episodes if most is None else min(most, self.num_episodes)
        for place in range(number):
            try:
                episode = self._opened[place]
            except Exception as error:
                raise InputError(f"episode {place} cannot be read: {in_one_line(error)}") from None
            yield episode
