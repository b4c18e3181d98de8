"""``spreeze_zmq.train``: its arguments as a command line of the launcher, whose end is a run or an error."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq.errors import ComponentFailed, InputError
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.training.launching import launch
from spreeze_zmq.training.run import Run

Table = Mapping[str, Any]


def train(
    env: str | Callable[..., Any] | None = None,
    *,
    stop: Table | None = None,
    algorithm: str = "auto",
    seed: int | None = None,
    options: Table | None = None,
    balance: Table | None = None,
    components: Table | None = None,
    channels: Table | None = None,
    topology: str | Path | None = None,
    run_dir: str | Path | None = None,
    progress: bool = True,
    **run: Any,
) -> Run:
    """Train a policy, and return the finished run.

    >>> run = spreeze_zmq.train("Pendulum-v1", stop={"return": -200}, seed=1)
    >>> run.policy(obs)
    >>> run.evaluate(episodes=20).mean_return

    The keyword arguments are the tables of a topology (``spreeze options`` lists every key): ``[run]`` key by
    key, ``[algorithm]`` as ``options``, the others by name. The run's processes are children of this one and
    never import the script that calls it, which so needs no ``if __name__ == "__main__"``. Ctrl-C, or the
    notebook's stop button, ends the run with a last checkpoint, and ``train`` returns it; once more stops it
    at once and raises KeyboardInterrupt.

    Args:
        env: a Gymnasium id, ``"my_module:Id-v0"``, ``"my_module:MyEnv"``, or a class or function of a module
            that other processes can import.
        stop: when to stop, whichever comes first: ``return``, ``env_steps``, ``minutes``,
            ``trained_transitions``; without it the run goes on until it is interrupted.
        algorithm: ``"sac"``, ``"td3"``, ``"dqn"``, ``"ppo"`` or ``"my_module:MyAlgorithm"``; ``"auto"`` goes
            by the environment's spaces.
        seed: from which all others are drawn.
        options: the algorithm's: ``{"batch_size": 256, "learning_rate": 1e-3}``.
        balance: ``{"replay_ratio": 32}``, ``{"mode": "lockstep"}``.
        components: by role: ``{"sampler": {"count": 2, "envs": 16}}``.
        channels: by name.
        topology: a file, or the name of one that ships, which the other arguments override key by key.
        run_dir: the run's folder, which must be new; by default ``runs/NAME-TIME``.
        progress: whether to show the course of the run.
        run: further keys of ``[run]``: ``env_kwargs``, ``randomize``, ``name``, ``checkpoint_minutes``.

    Raises:
        InputError: an argument is at fault; the message says which, and how to mend it.
        ComponentFailed: a process crashed more often than it may; the message holds the first failure.
        KeyboardInterrupt: it was interrupted twice.
    """
    name = None if env is None else env_name(env)
    if name is None and topology is None:
        raise InputError("train: expected an environment, as in train('Pendulum-v1', ...), or a topology")
    chosen = None if algorithm == "auto" and topology is not None else algorithm
    tables: dict[str, Any] = {
        "run": {"algorithm": chosen, "seed": seed, "stop": stop, **run},
        "algorithm": options,
        "balance": balance,
        "components": components,
        "channels": channels,
    }
    words = ["--env", name] if topology is None and name else [str(topology)]
    if topology is not None:
        tables["run"]["env"] = name
    words += [word for setting in settings(tables) for word in ("--set", setting)]
    stem = str(run.get("name") or name or Path(str(topology)).stem)
    folder = RunFolder.place(
        re.sub(r"[^A-Za-z0-9._-]", "_", stem.rpartition(":")[2]), str(run_dir) if run_dir else None
    )
    end = launch([*words, "--run-dir", str(folder)], import_paths(), show=progress)
    if end.code == InputError.exit_code:
        if not run_dir:
            with contextlib.suppress(OSError):  # something is in there
                folder.rmdir()
                folder.parent.rmdir()
        raise InputError(end.said.removeprefix("spreeze-launch: ") + _registered_here(name))
    if end.code != 0:
        raise ComponentFailed(end.said)
    if end.interrupts > 1:
        raise KeyboardInterrupt
    module, colon, _ = str(algorithm).partition(":")
    return Run(folder.resolve(), (module,) if colon else ())


def _registered_here(name: str | None) -> str:
    """A hint for an id that this process has registered, and the run's processes may not have."""
    gymnasium = sys.modules.get("gymnasium")
    spec = None if gymnasium is None else gymnasium.registry.get(name)
    if spec is None or str(spec.entry_point).startswith("gymnasium."):
        return ""
    return (
        f"\n  this process has registered {name}, but the run's processes import no script: register it in a "
        f"module and name that too, as in 'my_module:{name}'"
    )


def env_name(env: str | Callable[..., Any]) -> str:
    """The name by which another process makes an environment.

    Raises:
        InputError: it cannot be imported there.
    """
    if isinstance(env, str):
        return env
    module, name = getattr(env, "__module__", None), getattr(env, "__qualname__", None)
    if not callable(env) or not isinstance(module, str) or not isinstance(name, str):
        raise InputError(
            f"train: expected an environment's id, class or function, got {env!r:.80}; the run's processes"
            " make environments of their own"
        )
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not env:
        where = "this script or notebook" if module == "__main__" else f"another function of {module}"
        raise InputError(
            f"train: {name} is defined in {where}, where the run's processes cannot import it; write it at "
            "the top level of a file of its own, such as my_env.py, and give 'my_env:NAME'"
        )
    importlib.import_module(module)
    return f"{module}:{name}"


def settings(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """``A.B=VALUE`` for each value of nested tables, as ``--set`` takes them; None is left out.

    Raises:
        InputError: a value is none that TOML has.
    """
    for key, value in table.items():
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", str(key)) else json.dumps(str(key), ensure_ascii=False)
        place = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping) and value:
            yield from settings(value, place)
        elif value is not None:
            yield f"{place}={toml(value, place)}"


def toml(value: Any, place: str) -> str:
    """A value as TOML writes it.

    Raises:
        InputError: TOML has none of its kind.
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(item, place) for item in value)}]"
    if isinstance(value, Mapping):
        items = (f"{json.dumps(str(key))} = {toml(item, place)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    raise InputError(
        f"train: {place}: expected a number, a text, a list or a table, got {value!r:.80}; what other "
        "processes make themselves is named, as in 'my_module:name'"
    )


def import_paths() -> list[str]:
    """Where this process finds the user's own modules, beside what every Python finds."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    return [
        path
        for path in dict.fromkeys(map(os.path.abspath, sys.path))
        if os.path.isdir(path)
        and not os.path.realpath(path).startswith(library)
        and not {"site-packages", "dist-packages"} & set(Path(path).parts)
    ]
