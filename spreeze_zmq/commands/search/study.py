"""The study of a search, by optuna: which values are tried next, which runs are ended early, what was found.

Its file survives the search, so that a search that was killed goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import append_to
from spreeze_zmq.base.once import HAS_NO_LOCKS
from spreeze_zmq.commands.search.space import Varied
from spreeze_zmq.plan.releases import releases
from spreeze_zmq.run.curves import Array

log = logging.getLogger("spreeze")

#: Runs are compared where each has spent 1, and wherever it has spent this many times as much as there.
GROWTH = 1.1
#: Looks in a row whose mean is compared.
LOOKS = 3
#: A run is not ended early before this many others have ended.
LEAST_TRIALS = 4
#: State of a trial, as optuna names it -> in a table.
STATES = {"COMPLETE": "", "PRUNED": "ended early", "FAIL": "failed"}
_ABOUT = "search"
_PACKAGES, _OWN_CODE = "packages", "own_code"


class Row(NamedTuple):
    """A trial that is over.

    Attributes:
        number: optuna's.
        values: key -> value as TOML.
        score: the mean return of its best policy; None where nothing was evaluated.
        state: one of ``STATES``, how many episodes of its score time has cut, or that it was not evaluated;
            empty where it ran to its end and its score compares with others.
    """

    number: int
    values: dict[str, str]
    score: float | None
    state: str


class Study:
    """A study in a folder, begun or gone on with.

    Args:
        folder: where its file is.
        space: what is varied.
        about: what the search is of; a study that is gone on with must be of the same.
        own_code: of the plan of its runs.
        seed: of the choice of values.
        every: try every combination of the choices, each once, and end no run early.
        earlier: what earlier releases wrote as "contents" of the same.

    Attributes:
        packages: the releases that it was begun with, see ``plan.releases``; None for one that begins.
        own_code: likewise that of its plan.

    Raises:
        InputError: optuna is not installed, the folder holds another search or what is none, or another
            search is at work there.
    """

    def __init__(
        self,
        folder: Path,
        space: Sequence[Varied],
        about: Mapping[str, Any],
        own_code: Mapping[str, Any],
        seed: int,
        *,
        every: bool,
        earlier: Collection[str] = (),
    ) -> None:
        optuna = _optuna()
        self._lock = _locked(folder)
        pruner = optuna.pruners.MedianPruner(LEAST_TRIALS)
        self._states = optuna.trial.TrialState
        self._space = space
        try:
            _drop_torn_line(folder / "study.log")
            backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
            self._study = optuna.create_study(
                study_name=_ABOUT,
                storage=optuna.storages.JournalStorage(backend),
                pruner=optuna.pruners.NopPruner() if every else pruner,
                direction="maximize",
                load_if_exists=True,
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise InputError(
                f"--study {folder}: its study.log cannot be read ({error}): choose another folder"
            ) from None
        so_far = len(self._study.get_trials(deepcopy=False))  # a search that goes on chooses other values
        own = int(np.random.SeedSequence([seed, so_far]).generate_state(1)[0])
        self._study.sampler = optuna.samplers.TPESampler(seed=own, constant_liar=True)
        known = self._study.user_attrs.get(_ABOUT)
        if known is not None and known.get("contents") in earlier:
            known = {**known, "contents": about["contents"]}
        self.packages, self.own_code = map(self._study.user_attrs.get, (_PACKAGES, _OWN_CODE))
        if known is None:
            self._study.set_user_attr(_PACKAGES, releases())
            self._study.set_user_attr(_OWN_CODE, dict(own_code))
            self._study.set_user_attr(_ABOUT, dict(about))
        elif (known := _deciding(known)) != (about := _deciding(about)):
            differing = sorted(key for key in known.keys() | about.keys() if known.get(key) != about.get(key))
            was, now = ({key: found.get(key) for key in differing} for found in (known, about))
            raise InputError(
                f"--study {folder} holds a search of {was}, and this one is of {now}: choose another folder"
            )
        self._open: dict[int, Any] = {}
        if every:
            self._put_in_line()
        self._retry()

    def _put_in_line(self) -> None:
        """Put every combination in line that is not: an earlier search may have been killed at this."""
        keys = [varied.key for varied in self._space]
        for values in product(*(varied.tried for varied in self._space)):
            self._study.enqueue_trial(dict(zip(keys, values, strict=True)), skip_if_exists=True)

    def _retry(self) -> None:
        """Try once more what was under way when an earlier search was killed."""
        for trial in self._study.get_trials(states=(self._states.RUNNING,)):
            values = trial.system_attrs.get("fixed_params", trial.params)
            self._study.enqueue_trial(values, user_attrs=dict(trial.user_attrs))
            self._study.tell(trial.number, state=self._states.FAIL)

    @property
    def num_over(self) -> int:
        """Trials that have a value, were ended early or failed."""
        return len(self.rows())

    def ask(self) -> tuple[int, dict[str, str]]:
        """Number and values, as TOML, of the next trial."""
        trial = self._study.ask()
        self._open[trial.number] = trial
        values = {varied.key: varied.suggested(trial) for varied in self._space}
        trial.set_user_attr("values", values)
        return trial.number, values

    def progress(
        self, number: int, spent: Array, returns: Array, reported: int, *, may_end: bool
    ) -> tuple[int, bool]:
        """Compare the best three looks in a row of a run so far with others' last three, at equal cost, once
        there are three: a single lucky look, which may be the first, shields no run.

        Args:
            number: of the trial.
            spent: ``[K]`` core-seconds, or env steps, until each look.
            returns: ``[K]`` mean return of each.
            reported: the last power of ``GROWTH`` at which it was compared; -1 for none.
            may_end: whether it has had the time that each run gets.

        Returns:
            The last power at which it has been compared, and whether the run should be ended.
        """
        trial = self._open[number]
        while (mark := GROWTH ** (reported + 1)) <= spent[-1]:
            reported += 1
            before = returns[spent <= mark]
            if len(before) >= LOOKS:
                trial.report(float(before[-LOOKS:].mean()), reported)
                if may_end and trial.should_prune():
                    return reported, True
        return reported, False

    def tell(self, number: int, score: float | None, *, pruned: bool, cut: str = "") -> None:
        """End a trial; ``score`` is None where it has failed or was not evaluated, which ``cut`` says then,
        and else what that of ``Trial`` does.
        """
        trial = self._open.pop(number)
        trial.set_user_attr("score", score)
        trial.set_user_attr("cut", cut)
        if pruned or (cut and score is not None):  # its score decides nothing
            self._study.tell(trial, state=self._states.PRUNED)
        elif score is None:
            self._study.tell(trial, state=self._states.FAIL)
        else:
            self._study.tell(trial, score)

    def close(self) -> None:
        """Let another search go on with it."""
        self._lock.close()

    def rows(self) -> list[Row]:
        """The trials that are over, the best one first, those that were ended early or failed last, and
        those whose scores compare with no other.
        """
        found = []
        for trial in self._study.get_trials(deepcopy=False):
            about, failed = trial.user_attrs, trial.state == self._states.FAIL
            # else it is under way, or was when a search was killed, and has been tried again
            if trial.state.is_finished() and "score" in about and failed == (about["score"] is None):
                state = about.get("cut") or STATES[trial.state.name]
                found.append(Row(trial.number, dict(about["values"]), about["score"], state))
        return sorted(found, key=lambda row: (row.state != "", math.inf if row.score is None else -row.score))


def _locked(folder: Path) -> BinaryIO:
    """An open file of the folder whose lock says that a search is at work there, where the file system has
    locks; elsewhere a line says that it has none.

    Raises:
        InputError: another one is, or the file cannot be written.
    """
    with contextlib.ExitStack() as refused:
        try:
            file = refused.enter_context(append_to(folder / "study.lock"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--study {folder}: another search is at work there") from None
        except OSError as error:
            if error.errno not in HAS_NO_LOCKS:
                raise InputError(f"--study {folder}: {error.strerror}; choose another folder") from None
            log.warning("--study %s: its disk has no locks: nothing keeps a second search away", folder)
        refused.pop_all()
    return file


def _deciding(about: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the runs of a search: of one by env steps the minutes do not, which it may have kept."""
    by_steps = about.get("env_steps") is not None
    return {name: value for name, value in about.items() if not (by_steps and name == "minutes")}


def _drop_torn_line(path: Path) -> None:
    """Cut off the line that a search was writing when it was killed: optuna reads nothing behind it."""
    if path.is_file():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ModuleNotFoundError as error:
        raise InputError(
            f"this needs {error.name}, which is not installed: pip install 'spreeze_zmq[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
