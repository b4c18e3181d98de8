"""What a launcher shows its user: what the run is, what each process does, and the last words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spreeze_zmq.channels import SocketFolder
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, EVALUATOR, SAMPLER
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.status import mistakes, next_commands, outcome, program, stage_of
from spreeze_zmq.supervisor import Exited
from spreeze_zmq.topology.resolve import available_cores

AS_STATED = "as the topology says"


def facts(plan: Plan, folder: RunFolder, page_address: str) -> dict[str, str]:
    """What the run is, and where it can be looked at, by title; no ``page`` without an address."""
    run = plan.run
    found = {"run": f"{run.env}  {run.algorithm}  seed {run.seed}", "run folder": folder.shown}
    if run.resume_from:
        found["goes on from"] = run.resume_from
    if page_address:
        found["page"] = page_address
    found["curves"] = f"{program('tensorboard')} --logdir {shlex.quote(folder.shown)}"
    return found


def not_evaluated(plan: Plan) -> str:
    """Why the shipped evaluator cannot play; empty where it can."""
    if not plan.environment.described or plan.components[EVALUATOR].use != EVALUATOR:
        return ""
    return (
        f"nothing is evaluated: no Python program makes {plan.run.env}; the newest policy is saved at the end"
    )


def why_count(plan: Plan, role: str, remembered: str) -> str:
    """How the first count of a role was chosen; ``remembered`` says from which earlier run, if from one."""
    count = plan.components[role].count
    if role != SAMPLER or count.minimum == count.maximum:
        return AS_STATED
    return remembered or "by a rule from the number of cores"


def first_count(plan: Plan, why: str) -> str:
    """How many samplers a run begins with, and why; empty where the topology says it."""
    count = plan.components[SAMPLER].count
    if why == AS_STATED:
        return ""
    threads = max(plan.components[learner].threads for learner in plan.learning.learners)
    return (
        f"{available_cores()} cores: samplers begin with {count.initial} of {count.minimum} to "
        f"{count.maximum}, {why}; learners have {threads} thread{'s' * (threads > 1)} each"
    )


class News:
    """What each status holds that its reader has not been shown."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, ...], float] = {}
        self._went_back: set[tuple[str, float]] = set()

    def of(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each first refusal and for each tenfold count of it, and for each learner that has gone
        back to a checkpoint.
        """
        lines = []
        for row in mistakes(status):
            kind = (row["taker"], row["sender"], row["kind"], row["word"])
            if row["count"] >= 10 * self._refused.get(kind, 0.1):
                self._refused[kind] = row["count"]
                lines.append(row["line"])
        for row in status.get("went_back", ()):
            if (key := (row.get("learner", ""), row.get("t_s", 0.0))) not in self._went_back:
                self._went_back.add(key)
                lines.append(f"{key[0]}: {row.get('why')}")
        return lines


class Stages:
    """What each process does, in words: before the broker knows it, by whether it has taken its name.

    Args:
        sockets: where processes take their names.
    """

    def __init__(self, sockets: SocketFolder) -> None:
        self._sockets = sockets
        self._joined: dict[str, int] = {}

    def of(
        self, names: Iterable[str], pids: Mapping[str, int], heard: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, str]:
        """The stages by name.

        Args:
            names: of the processes that the launcher keeps.
            pids: of those that live.
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
    """What a process whose end was not expected failed by: the lines of an error of ours, which it says last
    and whose traceback its log holds; else how it ended and its last words.
    """
    role = event.name.rpartition("-")[0]
    _, found, message = f"\n{event.words}".rpartition(f"\n{role}: ")
    return message.strip() if found else f"{event.how}\n{event.words}"


def last_words(
    folder: RunFolder,
    reason: str,
    failures: Sequence[tuple[str, str]],
    input_fault: tuple[str, str] | None,
    last: str,
) -> list[str]:
    """What was reached, the commands that use the run, and the fault of the input or the first failure.

    Args:
        folder: the run's.
        reason: why it has ended; empty where it failed.
        failures: process and what happened.
        input_fault: process and what it found at fault.
        last: what comes last, if anything: why the run took no env step, or which process never got through.
    """
    summary = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    resume = f"{program('spreeze-launch')} --resume {shlex.quote(folder.shown)}"
    lines = [
        "",
        *outcome(summary, reason),
        *next_commands(
            folder.shown,
            policy=f"{folder.shown}/{folder.best_policy.name}" if folder.best_policy.exists() else "",
            resume=resume if latest(folder.checkpoints) is not None else "",
            scored=summary.get("best") is not None,
        ),
    ]
    if input_fault:
        name, what = input_fault
        lines += [f"its log: {folder.logs / name}.log", f"{name}: {what}"]
    elif failures:
        name, what = failures[0]
        lines += [f"its log: {folder.logs / name}.log", f"the first failure was {name}: {what}"]
    return [*lines, last] if last else lines


def why_silent(name: str, process: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Why a process is taken for not ready or lost, as far as its row of the status and refusals say it."""
    refused = [row["line"] for row in mistakes(status) if row["sender"] in (name, "")]
    if process.get("waiting_for"):
        return f"it waits for {process['waiting_for']}"
    if refused:
        return "; ".join(refused[:2])
    return "it reports, but has sent no hello" if process else "nothing has come from it"


def why_no_step(folder: RunFolder, processes: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a run has taken no env step, in one line; empty where it has.

    Args:
        folder: the run's.
        processes: of the last status.
    """
    summary = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
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
