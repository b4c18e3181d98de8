"""Runs that go on from others: what a resumed run takes over, and who its ancestors are.

One rule for all limits: ``run.stop`` counts from the beginning of the first run, in minutes as in env steps.
The child's journal begins with its parent's evaluations and figures up to the checkpoint, so that each reader
of a journal sees one curve, wherever the parent is by then.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import CheckpointError, StateNotKept
from spreeze_zmq.base.files import copy_whole, read_whole
from spreeze_zmq.base.journal import INHERITED, RESUMED, TURNED, Journal
from spreeze_zmq.broker.doctor.resumed_rules import ends_first, first_update_again
from spreeze_zmq.broker.doctor.vitals import Vitals
from spreeze_zmq.broker.record import RunRecord
from spreeze_zmq.launcher.options_before import held, turned_before, without_effect
from spreeze_zmq.launcher.scores_before import HAS_NONE, evaluations, why_not_best
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan, differing
from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.run.checkpoint import SavedCheckpoint, newest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import PastRun, ancestors_of, read_run, run_id
from spreeze_zmq.run.journal_lines import JournalLines
from spreeze_zmq.run.sampler_state import MOST_BYTES, WHY_NOT, state_file, unpacked
from spreeze_zmq.run.saved_replay import filled_elsewhere
from spreeze_zmq.screen.terminal.words import finding_line

#: Statuses of its ancestors that a run's journal holds; more are thinned evenly.
STATUSES_KEPT = 600


@dataclass(frozen=True)
class Origin:
    """What a run goes on from.

    Attributes:
        run: the folder that the user named, the parent's.
        checkpoint: its last complete one; of a run that has none the one that it went on from itself.
        skipped: a line for each newer one, with what is wrong with it.
        t_s: wall time up to the checkpoint, since the first of all its runs began.
        env_steps: likewise.
        counts: of the run at the checkpoint.
        ancestors: ids of the runs that went before, the oldest first, the parent last.
        set_anew: the keys that the line which goes on sets itself.
    """

    run: PastRun
    checkpoint: SavedCheckpoint
    skipped: tuple[str, ...]
    t_s: float
    env_steps: int
    counts: Mapping[str, float]
    ancestors: tuple[str, ...]
    set_anew: frozenset[tuple[str, ...]] = frozenset()

    @classmethod
    def of(cls, folder: Path, set_anew: frozenset[tuple[str, ...]] = frozenset()) -> Origin:
        """What the run in a folder hands on to one whose line sets some keys itself.

        Raises:
            InputError: it is no run's folder.
            CheckpointError: there is no complete checkpoint, or its state is none of a run.
        """
        run = read_run(folder)
        found, skipped = newest(RunFolder(folder).checkpoints)
        found = found or _handed_on(run, skipped)
        try:
            counts = {name: float(count) for name, count in found.state["counts"].items()}
            for name in ("core_s", "episodes"):  # which no learner counts
                counts[name] = float(found.state.get(name, counts.get(name, 0.0)))
            t_s, env_steps = float(found.state["t_s"]), int(counts["env_steps"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{found.path}: its state has no {error}; use an earlier one") from None
        ancestors = (*ancestors_of(run), run_id(folder))
        return cls(run, found, skipped, t_s, env_steps, counts, ancestors, set_anew)

    def turned(self, plan: Plan) -> dict[str, float]:
        """The options that were set while its run trained, and hold in one that goes on from it."""
        return turned_before(plan, self)[0]

    def advice(self, plan: Plan) -> tuple[str, ...]:
        """That a run which goes on from it ends before its first update, where it does."""
        limit = plan.run.stop.env_steps
        if limit is None or plan.offline or plan.learning.on_policy:
            return ()
        if plan.balance.in_order:
            waits = bool(why_not_exact(plan, self))
        else:
            waits = not (plan.run.save_replay and self.checkpoint.has_replay)
        vitals = Vitals(json.loads(plan.to_json()))
        vitals.turned = self.turned(plan)
        first = first_update_again(vitals, self.env_steps)
        found = ends_first(first, self.env_steps, limit) if waits else None
        return () if found is None else (finding_line(to_plain(found)),)

    def inherit(self, folder: RunFolder, plan: Plan) -> list[str]:
        """Begin the folder of a new run with the curve and the best policy; returns lines that say so."""
        why_not = why_not_best(plan, self)
        if not why_not:
            copy_whole(RunFolder(self.run.folder).best_policy, folder.best_policy)
        entries = [(entry["t_s"], "evaluation", entry) for entry in evaluations(plan, self, why_not)]
        entries += [(entry["t_s"], entry["kind"], entry) for entry in _figures(self)]
        journal = Journal(folder.metrics)
        for t_s, kind, entry in sorted(entries, key=lambda entry: entry[0]):
            journal.write(kind, t_s, {**entry, INHERITED: True})
        turned, lost = turned_before(plan, self)
        about: dict[str, Any] = {
            "run": str(self.run.folder.absolute()),
            "checkpoint": self.checkpoint.path.name,
        }
        about |= {TURNED: turned} if turned else {}
        journal.write(RESUMED, self.t_s, {**about, "counts": self.counts, INHERITED: True})
        journal.close()
        of_options = [*held(turned), *lost, *without_effect(plan, self, turned)]
        return [_counted(plan, self), *of_options, *_left_behind(plan, self, why_not)]


def _handed_on(run: PastRun, skipped: tuple[str, ...]) -> SavedCheckpoint:
    """The checkpoint that a run without a whole one of its own went on from."""
    given = run.plan["run"].get("resume_from")
    none = f"--resume {run.folder}: no complete checkpoint in {RunFolder(run.folder).checkpoints}"
    none += "".join(f"; {line}" for line in skipped)
    if not given:
        raise CheckpointError(none)
    try:
        return SavedCheckpoint.read(Path(given))
    except CheckpointError as error:
        raise CheckpointError(f"{none}, and the one that it went on from: {error}") from None


# --- what a run takes over


def reached(plan: Plan, origin: Origin) -> str:
    """The limit of the plan that holds already where it would go on, in words; empty if none does."""
    record = RunRecord(plan)
    record.learning.counts.update(origin.counts)
    for entry in evaluations(plan, origin, why_not_best(plan, origin)):
        record.evaluations.take(entry, entry["t_s"])
    return record.stop_condition(origin.t_s)


def why_not_exact(plan: Plan, origin: Origin) -> str:
    """Why a run in order will not give the numbers that one run of all its steps gives, in words; empty where
    it will.
    """
    if plan.offline:
        return "the learners of a run on data alone write at no common count"
    if not origin.checkpoint.state.get("exact"):
        return (
            "its checkpoint is not one at which all learners of a run in order had done the same, "
            "with its replay (run.save_replay)"
        )
    if others := differing(origin.run.plan, plan):
        return f"other than in the run before: {', '.join(others)}"
    if not (plan.learning.on_policy or plan.run.save_replay):
        return "its replay is left out (run.save_replay = false)"
    for index in range(plan.components[SAMPLER].count.initial):
        name = state_file(f"{SAMPLER}-{index}")
        if name not in origin.checkpoint.parts:
            return f"sampler-{index} has told no state, and begins new episodes"
        try:
            kept = unpacked(read_whole(origin.checkpoint.part(name), MOST_BYTES))
        except (OSError, StateNotKept, ValueError) as error:
            return f"{name}: {error}"
        if reason := kept.get(WHY_NOT):
            return f"the environments begin new episodes: {str(reason)[:200]}"
    return ""


def _figures(origin: Origin) -> Iterator[dict[str, Any]]:
    """The statuses up to the checkpoint, and where its ancestors went on from each other."""
    with JournalLines(RunFolder(origin.run.folder).metrics, ("status", RESUMED)) as lines:
        yield from filter(_has_counts, lines.read(RESUMED, until_s=origin.t_s))
        yield from filter(_is_whole, lines.read("status", STATUSES_KEPT, origin.t_s))


def _has_counts(resumed: Mapping[str, Any]) -> bool:
    """Whether a line that says where a run went on has the numbers that it went on from."""
    counts = resumed.get("counts")
    numbers: list[Any] = [*counts.values()] if isinstance(counts, dict) else [None]
    return all(type(number) in (int, float) and abs(number) < math.inf for number in numbers)


def _is_whole(status: Mapping[str, Any]) -> bool:
    """Whether a status has the figures that are drawn."""
    tables = ("episodes", "replay_ratio", "policy_lag", "workers", "gauges")
    steps = type(status.get("env_steps")) is int and type(status.get("trained_transitions")) in (int, float)
    return steps and all(isinstance(status.get(name), dict) for name in tables)


def _counted(plan: Plan, origin: Origin) -> str:
    """That the parent's steps and time count, and what is left of the limits."""
    stop, minutes = plan.run.stop, origin.t_s / 60
    left = []
    if stop.minutes is not None:
        left.append(f"{stop.minutes - minutes:.1f} of {stop.minutes:g} minutes")
    if stop.env_steps is not None:
        left.append(f"{stop.env_steps - origin.env_steps:,} of {stop.env_steps:,} env steps")
    if stop.trained_transitions is not None:
        more = stop.trained_transitions - int(origin.counts.get("trained_transitions", 0))
        left.append(f"{more:,} of {stop.trained_transitions:,} trained transitions")
    before = f"{origin.env_steps:,} env steps and {minutes:.1f} minutes"
    line = f"the {before} before count for the limits of run.stop"
    *first, last = left or ("",)
    return f"{line}: {' and '.join(filter(None, (', '.join(first), last)))} are left" if left else line


def _left_behind(plan: Plan, origin: Origin, why_not_best: str) -> Iterator[str]:
    """A line for the best policy, and one for a replay that does not come back."""
    policy = RunFolder(origin.run.folder).best_policy
    if not why_not_best:
        yield f"the best policy so far is {policy}, until a better one comes"
    elif why_not_best != HAS_NONE:
        yield f"the best policy so far, {policy}, is left behind: {why_not_best}"
    if plan.balance.in_order and (why_not := why_not_exact(plan, origin)):
        yield f"in order, but not exactly as one run would go on: {why_not}"
    fills_itself = not (plan.learning.on_policy or plan.offline or plan.balance.in_order)
    is_held = origin.checkpoint.has_replay
    if is_held and plan.run.save_replay and not plan.offline and (how := filled_elsewhere(plan, origin.run)):
        yield (
            f"the replay comes back with the rewards and steps of the run before, and {how}: both are "
            "trained on, until new ones have taken their place (run.save_replay = false fills a new one)"
        )
    if fills_itself and not (is_held and plan.run.save_replay):
        what, mends = ("is left behind", "takes it over") if is_held else ("was not saved", "saves it")
        wait = "updates wait until a tenth of its transitions has come again"
        yield f"the replay {what}: {wait} (run.save_replay = true {mends})"
