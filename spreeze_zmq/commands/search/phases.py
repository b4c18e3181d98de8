"""The phases of a search: trials with chosen values, then the best of them with seeds that chose nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import ComponentFailed
from spreeze_zmq.commands.search.space import overrides
from spreeze_zmq.commands.search.study import Study
from spreeze_zmq.commands.search.trials import UNSEEN, Trial, Trials
from spreeze_zmq.screen.terminal.numbers import decimal

#: Trials that may fail one after the other.
MOST_FAILURES = 3
#: Seconds between two looks at the runs.
POLL_S = 0.5
#: Pause after a look at a curve, in lengths of that look: the journal grows, and reading it takes cores.
LOOK_PAUSE = 20.0
#: Share of its length before which no run is ended early.
LEAST_SHARE = 0.25
#: Seeds of repetitions are this far from those of trials.
FRESH_SEEDS = 100_000
AS_IT_IS = "as it is"


@dataclass
class Finalist:
    """A setting that runs with fresh seeds: the topology as it is, where it has no values."""

    name: str
    values: Mapping[str, str]
    runs: list[Trial] = field(default_factory=list)

    @property
    def mean_return(self) -> float:
        """Over all its runs; minus infinity where one has failed, was never evaluated or was cut by time, and
        without any.
        """
        scores = [-np.inf if run.cut or (score := run.result) is None else score for run in self.runs]
        return float(np.mean(scores or [-np.inf]))


@dataclass
class Search:
    """A search under way.

    Attributes:
        study: what is tried.
        runs: the runs that live.
        folder: of the study.
        seed: of the topology.
        axis: what the length of a run is measured by, one of the axes of its curve.
        length: of each run, on that axis.
        cost: the axis at whose points runs are compared.
        failures: trials that failed one after the other.
    """

    study: Study
    runs: Trials
    folder: Path
    seed: int
    axis: str
    length: float
    cost: str
    failures: int = 0

    def try_values(self, num_trials: int) -> None:
        """Run trials until this many are over, those of an earlier search counted.

        Raises:
            ComponentFailed: trials failed one after the other.
        """
        while (left := num_trials - self.study.num_over - len(self.runs.live)) > 0 or self.runs.live:
            if left > 0 and self.runs.has_room:
                number, values = self.study.ask()
                name = f"trial-{number:04d}"
                self.runs.start(Trial(name, self.folder / name, values, self.seed + number, number))
            for trial in self.runs.ended():
                self._end(trial)
            for trial in self.runs.live:
                self._watch(trial)
            time.sleep(POLL_S)

    def _watch(self, trial: Trial) -> None:
        """Look whether a trial is behind, and end one that is."""
        began_s = time.monotonic()
        if trial.pruned or began_s < trial.next_look_s:
            return
        self._compare(trial)
        now_s = time.monotonic()
        trial.next_look_s = now_s + LOOK_PAUSE * (now_s - began_s)

    def _compare(self, trial: Trial) -> None:
        if (curve := trial.curve) is None or np.isnan(spent := curve.x[self.cost]).any():
            return
        share = curve.x[self.axis][-1] / self.length
        trial.reported, behind = self.study.progress(
            trial.number, spent, curve.mean_return, trial.reported, may_end=share >= LEAST_SHARE
        )
        if behind:
            trial.pruned = f"ended after {share:.0%} of its length, behind half of the others"
            self.runs.stop(trial)

    def _end(self, trial: Trial) -> None:
        """Take a trial's result."""
        score = _result(trial)
        pruned = bool(trial.pruned) and score is not None
        unseen = UNSEEN if trial.has_ended else ""
        self.study.tell(trial.number, score, pruned=pruned, cut=unseen if score is None else trial.cut)
        self.failures = 0 if score is not None else self.failures + 1
        if self.failures >= MOST_FAILURES:
            raise ComponentFailed(
                f"{MOST_FAILURES} trials failed one after the other: {trial.why_none}; see {trial.log}"
            )

    def repeat(self, num_finalists: int, num_seeds: int) -> list[Finalist]:
        """Run the topology as it is and the best trials with fresh seeds; runs of an earlier search count."""
        finalists = [Finalist(AS_IT_IS, {})]
        for row in self.study.rows():
            known = [other.values for other in finalists]
            if row.score is not None and not row.state and row.values not in known:
                finalists.append(Finalist(f"trial {row.number}", row.values))
        finalists = finalists[: 1 + num_finalists]
        for seed in range(self.seed + FRESH_SEEDS, self.seed + FRESH_SEEDS + num_seeds):
            for one in finalists:
                name = f"{one.name.replace(' ', '-')}-seed-{seed}"
                one.runs.append(Trial(name, self.folder / name, one.values, seed))
        by_seed = zip(*(one.runs for one in finalists), strict=True)
        waiting = [run for runs in by_seed for run in runs if not run.is_over]
        for run in waiting:
            if run.lives:
                say(f"{run.name}: it is waited for until that of the search before has ended", flush=True)
        while waiting or self.runs.live:
            free = [run for run in waiting if not run.lives] if self.runs.has_room else []
            if free:
                waiting.remove(free[0])
                self._repeat(free[0])
            for run in self.runs.ended():
                _result(run)
            time.sleep(POLL_S)
        return finalists

    def _repeat(self, run: Trial) -> None:
        """Start a finalist's run, in place of one that failed or that a search left when it was killed."""
        if run.is_over:  # it came to its end meanwhile
            _result(run)
            return
        if run.folder.exists():
            shutil.rmtree(run.folder)
        self.runs.start(run)


def best_of(finalists: Sequence[Finalist]) -> Finalist:
    """The one with the highest mean return; of equal ones the first.

    Raises:
        ComponentFailed: no setting has a return with each seed that compares with others.
    """
    best = max(finalists, key=lambda one: one.mean_return)
    if best.mean_return == -np.inf:
        runs = [run for one in finalists for run in one.runs]
        why = [f"{run.name} failed: {run.last_line}; see {run.log}" for run in runs if not run.has_ended]
        if cut := [f"{run.name} has {run.cut}" for run in runs if run.has_ended and run.cut]:
            why.append(
                f"of its episodes, {', '.join(cut)}: raise components.evaluator.max_s, and its stop_grace_s, "
                "of which those at the end of a run have half"
            )
        raise ComponentFailed(
            f"no setting was evaluated with every seed: {'; '.join(why) or 'give the runs more time'}"
        )
    return best


def shown(values: Mapping[str, str]) -> str:
    """Values in words."""
    return ", ".join(overrides(values)) or AS_IT_IS


def _result(run: Trial) -> float | None:
    """Say what a run that has ended has reached: its score, None where it has failed."""
    score = run.result
    failed = "" if run.has_ended else "failed: "
    found = f"{failed}{run.why_none}" if score is None else decimal(score)
    notes = "".join(f" ({note})" for note in (run.pruned, "" if score is None else run.cut) if note)
    say(f"{run.name}: {found}{notes}; {shown(run.values)}", flush=True)
    return score
