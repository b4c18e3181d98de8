"""Texts that the launcher shows its user: about the run, its processes, and its end."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import DiskFull
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.base.trust import grant_of
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.nodes.node import Node
from spreeze_zmq.plan.parts import StopPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, EVALUATOR, NODE, SAMPLER
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.ending import next_commands, outcome
from spreeze_zmq.screen.terminal.words import (
    counted,
    failure_rows,
    finding_line,
    findings,
    mistakes,
    program,
    stage_of,
)
from spreeze_zmq.supervisor import Exited
from spreeze_zmq.wire.channels import SocketFolder

AS_STATED = "as the topology says"
#: Most kinds of failures that are noted as they come.
MOST_KINDS = 20


def facts(plan: Plan, folder: RunFolder, page_address: str) -> dict[str, str]:
    """The run's properties and the places to watch it, by title; no ``page`` without an address."""
    run = plan.run
    rows = {"run": f"{run.env}  {run.algorithm}  seed {run.seed}", "run folder": folder.shown}
    if run.resume_from:
        rows["goes on from"] = run.resume_from
    if page_address:
        rows["page"] = page_address
    rows["curves"] = f"{program('tensorboard')} --logdir {shlex.quote(folder.shown)}"
    return rows


def how_to_join(address: str, folder: RunFolder) -> str:
    """How another machine joins, in one line."""
    key = shlex.quote(os.path.relpath(folder.invitation))
    return f"other machines join: ssh MACHINE spreeze join {address} < {key}"


def joined(node: Node) -> str:
    """That a machine has joined, in one line."""
    names = node.wanted or list(node.processes)
    runs = f"{names[0]} to {names[-1]}" if len(names) > 1 else "".join(names) or "nothing"
    return f"{node.host} has joined as {node.name}: {node.cores} cores; it runs {runs}"


def waits(name: str, wanted: str, any_joined: bool) -> str:
    """That a process waits for a machine, in one line."""
    if wanted == NODE:
        return f"{name} waits for a machine that joins (placement)"
    has = "none of those that have joined is one" if any_joined else "none has joined"
    return f"{name} waits for a machine called {wanted} (placement): {has}"


def gone(node: Node, how: str, names: Sequence[str]) -> str:
    """That a machine is gone, in one line."""
    lost = f"; with it {', '.join(names)}" if names else ""
    return f"{node.host} ({node.name}) is gone: {how}{lost}"


def not_evaluated(plan: Plan) -> str:
    """Why the shipped evaluator cannot evaluate this run; empty where it can."""
    if not plan.environment.described or plan.components[EVALUATOR].use != EVALUATOR:
        return ""
    return (
        f"nothing is evaluated: no Python program makes {plan.run.env}; the newest policy is saved at the end"
    )


def why_count(plan: Plan, role: str, remembered: str) -> str:
    """The source of a role's first count; ``remembered`` names an earlier run, if it comes from one."""
    count = plan.components[role].count
    if role != SAMPLER or count.minimum == count.maximum:
        return AS_STATED
    return remembered or "by a rule from the number of cores"


def first_count(plan: Plan, why: str) -> str:
    """The number of samplers that a run begins with, and why; empty where the topology states it."""
    count = plan.components[SAMPLER].count
    if why == AS_STATED:
        return ""
    cores = available_cores()
    threads = max(plan.components[learner].threads for learner in plan.learning.learners)
    return (
        f"{cores} core{'s' * (cores > 1)}: {count.initial} sampler{'s' * (count.initial > 1)} at first, "
        f"{why} ({count.minimum} to {count.maximum} may follow); "
        f"{threads} thread{'s' * (threads > 1)} a learner"
    )


class News:
    """The lines of each status that are new to the user.

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._logs = folder.logs
        self._failed: set[str] = set()
        self._refused: dict[tuple[str, ...], float] = {}
        self._went_back: set[str] = set()
        self._timed_out = False
        self._found: dict[str, str] = {}

    def of(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each new kind of refusal, again at ten times the count, for each learner that went back
        to a checkpoint, for each new kind of failure that its process survives, and for the first look whose
        episodes were cut by its limit of time.
        """
        lines = []
        for row in mistakes(status):
            kind = (row["taker"], row["sender"], row["kind"], row["word"])
            if row["count"] >= 10 * self._refused.get(kind, 0.1):
                self._refused[kind] = row["count"]
                lines.append(row["line"])
        for row in status.get("went_back", ()):
            if (line := f"{row.get('learner', '')}: {row.get('why')}") not in self._went_back:
                self._went_back.add(line)  # the text counts them: two may have come at one time
                lines.append(line)
        for row in failure_rows(status.get("failures", ())):
            if row["survived"] and row["kind"] not in self._failed and len(self._failed) < MOST_KINDS:
                self._failed.add(row["kind"])
                lines.append(f"{row['name']}: {row['summary']}; it goes on ({self._logs / row['name']}.log)")
        lines += self._findings(status)
        look = _table_in(_table_in(status, "evaluation"), "last")
        if look.get("timed_out") and not self._timed_out:
            self._timed_out = True
            cut = f"{look.get('num_truncated')} of {look.get('num_episodes')} episodes"
            why = "had not ended after components.evaluator.max_s and were cut"
            lines.append(f"evaluator: {cut} {why}; such an evaluation cannot end the run at its return")
        return lines

    def _findings(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each finding that is new, and one for each that holds no longer."""
        now = {row["name"]: row for row in findings(status)}
        lines = [f"finding: {finding_line(now[name])}" for name in now if name not in self._found]
        if status.get("state") != "stopping":
            lines += [f"no longer: {self._found[name]}" for name in self._found if name not in now]
        self._found = {name: row["seen"] for name, row in now.items()}
        return lines


def _table_in(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a status; empty where there is none, as in that of another broker."""
    found = status.get(name)
    return found if isinstance(found, Mapping) else {}


class Stages:
    """The stage of each process, in words. Before the broker has heard from a process, its stage follows from
    whether it has claimed its name.

    Args:
        sockets: the folder in which processes claim their names.
    """

    def __init__(self, sockets: SocketFolder) -> None:
        self._sockets = sockets
        self._joined: dict[str, int] = {}

    def of(
        self, names: Iterable[str], pids: Mapping[str, int], heard: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, str]:
        """The stages by name.

        Args:
            names: names of the supervised processes.
            pids: process ids of the living ones.
            heard: the rows of the broker's status.
        """
        names = list(names)
        ahead = "setting up" if heard or f"{BROKER}-0" in names else "waits for a broker"
        return {name: self._stage(name, pids.get(name), heard.get(name, {}), ahead) for name in names}

    def _stage(self, name: str, pid: int | None, heard: Mapping[str, Any], ahead: str) -> str:
        if pid is None:
            return "starts again soon"
        if heard.get("pid") == pid:
            return stage_of(heard)
        if self._joined.get(name) != pid and self._sockets.holder(name) == pid:
            self._joined[name] = pid
        return ahead if self._joined.get(name) == pid else "importing"


def fault_in(event: Exited) -> str:
    """Why a process ended unexpectedly: the message of an error of ours, which is printed last, behind the
    role; otherwise how it ended and its last words.
    """
    role = event.name.rpartition("-")[0]
    _, separator, message = f"\n{event.words}".rpartition(f"\n{role}: ")
    return message.strip() if separator else f"{event.how}\n{event.words}"


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
    printed: Sequence[str] = (),
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
        printed: the processes that have printed something, the first one first.
    """
    summary = _summary(folder)
    marked = not grant_of(folder.path).why_not  # else the commands must be told what the mark would
    command = [] if marked else plan.command
    resume = f"{program('spreeze-launch')} {shlex.join([*command, '--resume', folder.shown])}"
    resume += further(plan.run.stop, reason)
    topology = Path(plan.topology_file).parent
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
            import_from="" if topology == Path.cwd() else str(topology),
        ),
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
    """The option that lets a run go on which ended at a limit: twice as far, or without a return. Empty where
    another reason ended it.
    """
    name = reached.partition(" ")[0]
    if name == "return":
        return " --set run.stop.return=none"
    limit = getattr(stop, name, None) if name in ("env_steps", "trained_transitions", "minutes") else None
    return "" if limit is None else f" --set run.stop.{name}={2 * limit}"


def why_silent(name: str, process: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Why a process is not ready or does not report, according to its row of the status and to refusals."""
    refused = [row["line"] for row in mistakes(status) if row["sender"] in (name, "")]
    if process.get("waiting_for"):
        return f"it waits for {process['waiting_for']}"
    if refused:
        return "; ".join(refused[:2])
    return "it reports, but has sent no hello" if process else "nothing has come from it"


def why_no_step(folder: RunFolder, processes: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a run has taken no env step, in one line; empty where it has.

    Args:
        folder: the run's folder.
        processes: the rows of the last status.
    """
    summary = _summary(folder)
    if not summary:
        return "no env step was taken: the run ended before its broker had begun"
    if summary["samples"]["produced"] > 0:
        return ""
    waiting = [
        f"{name} waited for {process.get('waiting_for') or 'its own start'}"
        for name, process in processes.items()
        if process.get("waiting_for") or not process.get("ready")
    ]
    refused = [row["line"] for row in mistakes(summary)]
    why = "; ".join(waiting + refused) or "the run ended before the first rollout was sent"
    return f"no env step was taken in {summary['wall_s']:.1f} s: {why}"


def why_no_episode(folder: RunFolder) -> str:
    """Why a run is no success whose environment failed the samplers and the evaluator before any episode had
    ended, in one line; empty for any other run, also one that was too short for an evaluation.
    """
    summary = _summary(folder)
    rows = _survived_kinds(summary)
    roles = {row["name"].rpartition("-")[0] for row in rows}
    if summary.get("episodes") or summary.get("evaluations") or not {SAMPLER, EVALUATOR} <= roles:
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


def _summary(folder: RunFolder) -> dict[str, Any]:
    """The run's summary.json; empty where there is none."""
    summary: dict[str, Any] = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    return summary
