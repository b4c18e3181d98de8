"""Runs of a search: each a ``spreeze-launch`` on its share of the cores, several beside each other."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.run.curves import Curve, read_curve
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.terminal.words import cut_by_time
from spreeze_zmq.supervisor import GroupSpawner, Process, ProcessSpec

#: A run that is asked to end has this long until it is asked once more, which leaves its last evaluation out,
#: and as long again until it is killed.
PATIENCE_S = 8.0
#: What a run is that has ended in good order before its first look.
UNSEEN = "not evaluated"


@dataclass
class Trial:
    """One run.

    Attributes:
        name: within the search, and of its folder.
        folder: the run's.
        values: key of the topology -> value as TOML, of what is varied.
        seed: of the run.
        number: optuna's; -1 of a run that repeats a trial.
        pruned: why it was ended early; empty if it was not.
        code: its exit code; None while it runs.
        slot: which share of the cores it has.
        reported: the last power of ``GROWTH`` at which it was compared with others; -1 for none.
        asked_s: when it was asked to end, by ``time.monotonic``.
        next_look_s: when its curve is read again, by ``time.monotonic``.
    """

    name: str
    folder: Path
    values: Mapping[str, str]
    seed: int
    number: int = -1
    pruned: str = ""
    code: int | None = None
    slot: int = -1
    reported: int = -1
    asked_s: list[float] = field(default_factory=list)
    next_look_s: float = 0.0

    @property
    def log(self) -> Path:
        """What the run printed."""
        return self.folder.with_suffix(".log")

    @property
    def last_line(self) -> str:
        """Of what the run printed."""
        lines = (
            self.log.read_text(encoding="utf-8", errors="replace").split("\n") if self.log.exists() else []
        )
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")

    @property
    def score(self) -> float | None:
        """Mean return of its best policy in fresh episodes; None where nothing was evaluated."""
        try:
            best = read_run(self.folder).summary.get("best_return")
        except InputError:
            return None
        return None if best is None else float(best)

    @property
    def cut(self) -> str:
        """How many episodes of its score time has cut: it compares with no other then; empty for none."""
        try:
            return cut_by_time(read_run(self.folder).summary.get("best"))
        except InputError:
            return ""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended in good order, perhaps for an earlier search: its folder says so."""
        try:
            return read_run(self.folder).state == "ended"
        except InputError:
            return False

    @property
    def lives(self) -> bool:
        """Whether its processes are there, perhaps those of an earlier search that was killed."""
        try:
            return read_run(self.folder).state == "running"
        except InputError:
            return False

    @property
    def result(self) -> float | None:
        """Its score; None where it has failed."""
        return self.score if self.has_ended else None

    @property
    def why_none(self) -> str:
        """Why it has no score."""
        return f"{UNSEEN}: give the runs more time" if self.has_ended else self.last_line

    @property
    def is_over(self) -> bool:
        """Whether it has run to its end, perhaps for an earlier search; one that has failed may run again."""
        return self.has_ended and not read_run(self.folder).exit_reason.startswith("interrupted")

    @property
    def curve(self) -> Curve | None:
        """Its evaluations so far, without those that time has cut; None before the first."""
        try:
            return read_curve(self.folder, with_cut=False)
        except (InputError, OSError):
            return None


class Trials:
    """Starts runs on shares of this machine's cores and watches them.

    Args:
        command: words of ``spreeze-launch`` that all have in common.
        shares: the CPUs of each run that may live at once.
        gpus: CUDA_VISIBLE_DEVICES of each; empty where each has all.
    """

    def __init__(
        self, command: Sequence[str], shares: Sequence[frozenset[int]], gpus: Sequence[str] = ()
    ) -> None:
        self.live: list[Trial] = []
        self._command, self._shares, self._gpus = tuple(command), shares, gpus
        self._spawner = GroupSpawner()
        self._processes: dict[str, Process] = {}

    @property
    def has_room(self) -> bool:
        """Whether a further run may start."""
        return len(self.live) < len(self._shares)

    def start(self, trial: Trial) -> None:
        """Start a run on a share that is free."""
        trial.slot = min(set(range(len(self._shares))) - {other.slot for other in self.live})
        own = [f"--set={key}={text}" for key, text in trial.values.items()]
        own += [f"--set=run.seed={trial.seed}", f"--run-dir={trial.folder}"]
        spec = ProcessSpec(
            name=f"{trial.name}-0",
            command=(*PROGRAM, "spreeze_zmq.commands.launch", *self._command, *own),
            log_path=trial.log,
            environment={"CUDA_VISIBLE_DEVICES": self._gpus[trial.slot]} if self._gpus else {},
            threads=0,
            parent_death_signal=signal.SIGTERM,
            cpus=self._shares[trial.slot],
        )
        self._processes[trial.name] = self._spawner.spawn(spec)
        self.live.append(trial)

    def ended(self) -> list[Trial]:
        """The runs that have ended since the last call."""
        for trial in self.live:
            process = self._processes[trial.name]
            trial.code = process.poll()
            if trial.code is None and trial.asked_s and time.monotonic() > trial.asked_s[-1] + PATIENCE_S:
                self._ask(trial)
        over = [trial for trial in self.live if trial.code is not None]
        self.live = [trial for trial in self.live if trial.code is None]
        return over

    def stop(self, trial: Trial) -> None:
        """Ask a run to end; its best policy so far is kept."""
        if not trial.asked_s:
            self._ask(trial)

    def _ask(self, trial: Trial) -> None:
        kill = len(trial.asked_s) > 1
        self._processes[trial.name].signal(signal.SIGKILL if kill else signal.SIGTERM)
        trial.asked_s.append(time.monotonic())

    def close(self) -> None:
        """End all runs."""
        for trial in self.live:
            self.stop(trial)
        while self.live:
            self.ended()
            time.sleep(0.05)
        self._spawner.close()
