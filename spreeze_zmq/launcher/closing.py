"""What the launcher says at the end of a run: its outcome, why it is no success, the commands that use it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import DiskFull
from spreeze_zmq.base.machine import program
from spreeze_zmq.base.trust import grant_of, modules_folder
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.ending import next_commands, outcome
from spreeze_zmq.screen.terminal.numbers import counted, lasted
from spreeze_zmq.screen.terminal.words import failure_rows, mistakes


def full_disk(folder: RunFolder, input_fault: tuple[str, str] | None) -> str:
    """That the run's disk is full, if a process found it so or no log could be written; else empty."""
    full = str(DiskFull(folder.path))
    return full if folder.is_full or (input_fault and input_fault[1] == full) else ""


def closing_lines(
    folder: RunFolder,
    plan: Plan,
    reason: str,
    failures: Sequence[tuple[str, str]],
    input_fault: tuple[str, str] | None,
    last: str,
    left_out: str = "",
    printed: Sequence[str] = (),
    listens: Sequence[str] = (),
) -> list[str]:
    """The lines at the end of a run: its outcome, the commands that use it, and the fault of the input or the
    first failure.

    Args:
        folder: the run's folder.
        plan: the run's.
        reason: why it has ended; empty where it failed.
        failures: process and what happened.
        input_fault: process and the fault that it found in the user's input.
        last: the last line, if any: why the run took no env step, or which process was stuck.
        left_out: that the last checkpoint of a run that failed is incomplete; empty where it is not.
        printed: the processes that have printed something, the first one first.
        listens: the words of the command line that let other machines join.
    """
    summary = _summary(folder)
    marked = not grant_of(folder.path).why_not  # else the commands must be told what the mark would
    command = [] if marked else plan.command
    resume = f"{program('spreeze-launch')} {shlex.join([*command, '--resume', folder.shown, *listens])}"
    resume += further(plan.run.stop, reason)
    modules = modules_folder(plan.topology_file)
    lines = [
        "",
        *outcome(summary, reason),
        *_survived(folder, summary),
        *next_commands(
            folder.shown,
            policy=folder.best_policy.exists(),
            resume=resume if latest(folder.checkpoints) is not None else "",
            scored=summary.get("best") is not None,
            prints=_prints(folder, printed),
            trust=() if marked else own_modules(plan),
            import_from="" if modules == Path.cwd() else str(modules),
        ),
        *filter(None, [left_out]),
    ]
    if input_fault:
        name, what = input_fault
        lines += [f"its log: {folder.logs / name}.log", f"{name}: {what}"]
    elif failures:
        name, what = failures[0]
        lines += [f"its log: {folder.logs / name}.log", f"the first failure was {name}: {what}"]
    return [*lines, last] if last else lines


def _prints(folder: RunFolder, printed: Sequence[str]) -> str:
    """The log in which a person looks first for what was printed: a sampler's, if one has; empty for none."""
    if not printed:
        return ""
    first = min(printed, key=lambda name: not name.startswith(f"{SAMPLER}-"))
    more = len(set(printed)) - 1
    return f"{folder.shown}/logs/{first}.log" + (f" (and {more} more)" if more else "")


def further(stop: StopPlan, reached: str) -> str:
    """The option that lets a run go on which ended at a limit, or is past it: about twice as far as it got,
    or without a return. Empty where another reason ended it.
    """
    name, _, place = reached.partition(" ")
    if name == "return":
        return " --set run.stop.return=none"
    limit = getattr(stop, name, None) if name in ("env_steps", "trained_transitions", "minutes") else None
    if limit is None:
        return ""
    return f" --set run.stop.{name}={round(2 * float(place.split()[0]) / limit) * limit}"


def why_no_step(folder: RunFolder, processes: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a run has taken no env step, in one line; empty where it has.

    Args:
        folder: the run's folder.
        processes: the rows of the last status.
    """
    summary = _summary(folder)
    if not summary:
        return "no env step was taken: the run ended before its broker had begun"
    if summary["samples"]["produced"] > 0 or _own(summary, "trained_transitions") > 0:
        return ""
    waiting = [
        f"{name} waited for {process.get('waiting_for') or 'its own start'}"
        for name, process in processes.items()
        if process.get("waiting_for") or not process.get("ready")
    ]
    refused = [row["line"] for row in mistakes(summary)]
    why = "; ".join(waiting + refused) or "the run ended before the first rollout was sent"
    return f"no env step was taken in {lasted(_own(summary, 'wall_s'))}: {why}"


def why_no_episode(folder: RunFolder) -> str:
    """Why a run is no success whose environment failed the samplers and the evaluator before any episode had
    ended, in one line; empty for any other run, also one that was too short for an evaluation.
    """
    summary = _summary(folder)
    rows = _survived_kinds(summary)
    roles = {row["name"].rpartition("-")[0] for row in rows}
    began_s = (summary.get("resumed") or {}).get("t_s", -1.0)
    looks = [look for look in summary.get("evaluations", ()) if look[0] > round(began_s, 3)]
    if _own(summary, "episodes") or looks or not {SAMPLER, EVALUATOR} <= roles:
        return ""
    return f"no episode ended without a failure and no policy was evaluated: {rows[0]['summary']}"


def why_no_checkpoint(folder: RunFolder) -> str:
    """That the last checkpoint is incomplete, and what a run can go on from, in one line; else empty."""
    missing = _summary(folder).get("unfinished_checkpoint", [])
    if not missing:
        return ""
    earlier = latest(folder.checkpoints)
    steps = 0 if earlier is None else int(earlier.state["counts"]["env_steps"])
    at = (
        "there is none before it"
        if earlier is None
        else f"--resume goes on from the one at {steps:,} env steps"
    )
    return f"the last checkpoint is incomplete: no part has come from {' and '.join(missing)}; {at}"


def _survived(folder: RunFolder, summary: Mapping[str, Any]) -> list[str]:
    """One line with the number of failures that their processes survived, and the first of them; no line
    without any.
    """
    count = sum(row["count"] for row in _survived_kinds(summary))
    first = [failure for failure in summary.get("failures", ()) if failure.get("survived")][:1]
    return [
        f"{counted(count)}, the first: {failure['name']}: {failure['summary']}"
        f" (tracebacks: {folder.shown}/logs/{failure['name']}.log)"
        for failure in first
    ]


def _survived_kinds(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The kinds of failures that processes report of their environments, and survive."""
    return [row for row in failure_rows(summary.get("failure_kinds", ())) if row["survived"]]


def _own(summary: Mapping[str, Any], name: str) -> float:
    """A count of summary.json, or its time, of this run alone: there they are those of all runs that go on
    from each other.
    """
    resumed = summary.get("resumed") or {}
    before = {**resumed.get("counts", {}), "wall_s": resumed.get("t_s", 0.0)}
    return float(summary.get(name, 0) - before.get(name, 0))


def _summary(folder: RunFolder) -> dict[str, Any]:
    """The run's summary.json; empty where there is none."""
    summary: dict[str, Any] = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    return summary
