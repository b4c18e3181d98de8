"""``spreeze_zmq.train``: runs the launcher with its arguments as a command line; and the finished run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.errors import ComponentFailed, InputError, is_installed
from spreeze_zmq.base.files import file_name
from spreeze_zmq.base.importing import check_interpreter, folder_now, importing, is_marked, loaded
from spreeze_zmq.base.machine import program
from spreeze_zmq.base.trust import ADDED, grant_of, make_importable, modules_folder
from spreeze_zmq.evaluation.evaluation import Score
from spreeze_zmq.evaluation.saved import SavedPolicy, own_modules
from spreeze_zmq.launcher.training.arguments import env_name, settings
from spreeze_zmq.launcher.training.launching import End, launch
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.supervisor.events import signal_name

if TYPE_CHECKING:
    from spreeze_zmq.callbacks import Callback

Table = Mapping[str, Any]
#: Exit codes of a launcher that is interrupted before its run begins: while it loads, and then.
NOT_BEGUN = (-signal.SIGINT, 130)


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
    data: Table | None = None,
    groups: Table | None = None,
    topology: str | Path | None = None,
    run_dir: str | Path | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback | str] = (),
    **run: Any,
) -> Run:
    """Train a policy, and return the finished run.

    >>> run = spreeze_zmq.train("Pendulum-v1", stop={"return": -200}, seed=1)
    >>> run.policy(obs)
    >>> run.evaluate(episodes=20).mean_return

    The keyword arguments are the tables of a topology (``spreeze options`` lists every key): ``[run]`` key by
    key, ``[algorithm]`` as ``options``, the others by name. The run's processes are children of this one and
    import the modules that are named, so only a script that names itself, as in ``"my_script:MyEnv"``, calls
    ``train`` under ``if __name__ == "__main__":``. Ctrl-C, or a notebook's stop button, ends the run with a
    last checkpoint, and ``train`` returns it, if it has taken an env step; a second one stops it at once and
    raises KeyboardInterrupt. Machines join a run of ``spreeze-launch --listen`` alone, so ``[placement]`` is
    no argument.

    Args:
        env: a Gymnasium id, ``"my_module:Id-v0"``, ``"my_module:MyEnv"``, or a class or function of a module
            that other processes can import.
        stop: when to stop, whichever comes first: ``return``, ``env_steps``, ``minutes``,
            ``trained_transitions``; without it the run goes on until it is interrupted.
        algorithm: ``"sac"``, ``"ppo"`` or another that ships, or ``"my_module:My"``; ``"auto"`` picks
            one that suits the environment's spaces.
        seed: the run's; every other seed is derived from it.
        options: the algorithm's options: ``{"batch_size": 256, "learning_rate": 1e-3}``.
        balance: ``{"replay_ratio": 32}``, ``{"mode": "lockstep"}``.
        components: by role: ``{"sampler": {"count": 2, "envs": 16}}``.
        channels: by name.
        data: the sources of transitions that are not sampled: ``{"shown": {"source": "minari:a/b-v0"}}``.
        groups: ``{"count": 2}``.
        topology: a file, or the name of a shipped one; the other arguments override its keys.
        run_dir: the run's folder, which must be new; by default ``runs/NAME-TIME``.
        progress: whether to print the run's progress.
        callbacks: objects of classes that inherit :class:`spreeze_zmq.Callback`, or ``"my_module:MyClass"``.
            They are called in threads of this process, which the run never waits for; when it is over, each
            has its ``end_s`` to finish (3 s, a logger 30), or until Ctrl-C, and the run is returned.
        run: further keys of ``[run]``: ``env_kwargs``, ``randomize``, ``name``, ``checkpoint_minutes``.

    Raises:
        InputError: an argument is wrong; the message says which, and how to mend it.
        ComponentFailed: the run failed, as for exit code 1 of ``spreeze-launch``; the message says how: a
            process crashed more often than it may, no env step was taken, also since it was interrupted
            before the first one, every episode failed, or the last checkpoint is incomplete.
        KeyboardInterrupt: it was interrupted twice, or before the run had begun.
    """
    if is_marked():
        raise InputError(
            "train: called while a run imports this file, or in one of its processes: put the call under "
            'if __name__ == "__main__"'
        )
    check_interpreter()
    name = None if env is None else env_name(env)
    called = _checked(callbacks)
    if name is None and topology is None:
        raise InputError("train: expected an environment, as in train('Pendulum-v1', ...), or a topology")
    chosen = None if algorithm == "auto" and topology is not None else algorithm
    tables: dict[str, Any] = {
        "run": {"algorithm": chosen, "seed": seed, "stop": stop, **run},
        "algorithm": options,
        "balance": balance,
        "components": components,
        "channels": channels,
        "data": data,
        "groups": groups,
    }
    if topology is not None:
        tables["run"]["env"] = name
    words = ["--env", name] if topology is None and name else [str(topology)]
    stated = settings(tables, over=topology is not None)
    words += [word for setting in stated for word in ("--set", setting)]
    words += _observed(called)
    stem = str(run.get("name") or name or Path(str(topology)).stem)
    place = RunFolder.place(file_name(stem.rpartition(":")[2]), str(run_dir) if run_dir else None)
    folder = RunFolder(place.absolute())  # a callback may change the current folder
    try:
        with _watched(folder, called, logging.INFO if progress else logging.WARNING):
            end = launch([*words, "--run-dir", str(place)], import_paths(env), show=progress)
    finally:
        if not run_dir:
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.path.rmdir()
                folder.path.parent.rmdir()
    _check_end(end, name, folder)
    plan = Plan.read(folder.run_file)
    if own_modules(plan):
        make_importable(modules_folder(plan.topology_file))
    # this process knows who made the run; a mark knows the modules' places, too
    trust = own_modules(plan) if grant_of(folder.path).why_not else ()
    return Run(folder.path.resolve(), trust)


def _check_end(end: End, env: str | None, folder: RunFolder) -> None:
    """Raise what :func:`train` does where its run was interrupted twice or before it began, or has failed."""
    if end.interrupts > (0 if end.code in NOT_BEGUN else 1):
        raise KeyboardInterrupt
    if end.code == InputError.exit_code:
        words = re.split("^spreeze-launch: ", end.message, flags=re.MULTILINE)[-1]  # after what modules print
        raise InputError(words + _registered_here(env))
    if end.code < 0:
        what = " before the run began"
        if folder.run_file.exists():
            resume = f"{program('spreeze-launch')} --resume {shlex.quote(str(folder.path))}"
            goes_on = f"from its last checkpoint, if there is one, goes on {resume}"
            what = f", and the run with it: see {folder.logs}; {goes_on}"
        raise ComponentFailed(
            f"{signal_name(-end.code)} ended the launcher{what}{end.message and chr(10)}{end.message}"
        )
    if end.code != 0:
        raise ComponentFailed(end.message)


def _checked(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks, if they are some; without any their room is not imported."""
    if isinstance(callbacks, list | tuple) and not callbacks:
        return ()
    from spreeze_zmq.callbacks.named import checked

    try:
        with importing():  # one that is named may be of the calling script
            return checked(callbacks)
    except InputError as error:
        raise InputError(f"train: {error}") from None


def _observed(callbacks: tuple[Callback, ...]) -> list[str]:
    """What tells the launcher that they may end a run without a limit."""
    if not callbacks:
        return []
    from spreeze_zmq.callbacks.named import may_stop

    return ["--observed"] * may_stop(map(type, callbacks))


def _watched(
    folder: RunFolder, callbacks: tuple[Callback, ...], level: int
) -> contextlib.AbstractContextManager[None]:
    """Calls the callbacks meanwhile; ``level`` is that of what is logged of them."""
    if not callbacks:
        return contextlib.nullcontext()
    from spreeze_zmq.callbacks.beside import watched

    return watched(folder, callbacks, level)


def _registered_here(name: str | None) -> str:
    """A hint for an id that is registered in this process, but perhaps not in the run's processes."""
    gymnasium = loaded("gymnasium")
    spec = None if gymnasium is None else gymnasium.registry.get(name)
    if spec is None or str(spec.entry_point).startswith("gymnasium."):
        return ""
    return (
        f"\n  this process has registered {name}, but the run's processes import no script: register it in a "
        f"module and name that too, as in 'my_module:{name}'"
    )


def import_paths(env: Any = None) -> list[str]:
    """The folders and archives on this process's import path, without the standard library, installed
    packages and those of earlier runs, but with the one that a class or function ``env`` is from.
    """
    given = [path for path in sys.path if path not in ADDED or sys.path.count(path) > 1]
    if callable(env) and (own := folder_now(env.__module__.partition(".")[0], sys.path)) in ADDED:
        given.append(own)
    return [
        path
        for path in dict.fromkeys(map(os.path.abspath, given))
        if os.path.exists(path) and not is_installed(path) and not is_installed(os.path.realpath(path))
    ]


@dataclass(frozen=True)
class Run:
    """A run's folder, its summary and its best policy.

    Attributes:
        folder: the run's.
        trust: modules that the policy file may name beside the modules of a run that this user made; loading
            and playing it runs their code.
    """

    folder: Path
    trust: Collection[str] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles read its folder themselves."""
        return type(self), (self.folder, self.trust)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json``: exit_reason, wall_s, env_steps, evaluations, best_return and more."""
        summary: dict[str, Any] = json.loads(RunFolder(self.folder).summary.read_text())
        return summary

    @property
    def policy(self) -> Policy:
        """The best policy by evaluation; ``run.policy(obs)`` gives its deterministic action.

        Raises:
            InputError: no policy was evaluated.
        """
        return self._saved.policy

    def evaluate(self, episodes: int | None = None, seed: int | None = None) -> Score:
        """Play whole episodes with the best policy.

        Args:
            episodes: how many, all at once, or in turn where environments have a number each; by default as
                many as for its score.
            seed: episode ``i`` begins with ``seed + i``; by default a fresh one. The policy's
                ``metadata["evaluation_seed"]`` repeats the episodes of its score.

        Returns:
            ``returns`` and ``lengths`` of the episodes, and their ``mean_return``.

        Raises:
            InputError: there is no policy, or ``episodes`` is below 1.
        """
        return self._saved.play(episodes, seed)

    @cached_property
    def _saved(self) -> SavedPolicy:
        return SavedPolicy.load(self.folder, self.trust)
