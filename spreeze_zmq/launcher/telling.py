"""What a launcher tells its user: what the run is, what each process does, and the last words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spreeze_zmq.channels import SocketFolder
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, SAMPLER
from spreeze_zmq.run.checkpoint import latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.status import next_commands, outcome, program, stage_of
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


def last_words(
    folder: RunFolder,
    reason: str,
    command: str,
    failures: Sequence[tuple[str, str]],
    input_fault: tuple[str, str] | None,
    no_step: str,
) -> list[str]:
    """What was reached, the commands that use the run, and the fault of the input or the first failure.

    Args:
        folder: the run's.
        reason: why it has ended; empty where it failed.
        command: the one that began it, without ``--resume``.
        failures: process and what happened.
        input_fault: process and what it found at fault.
        no_step: why the run took no env step; empty where it did.
    """
    summary = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    resume = f"{command} --resume {shlex.quote(folder.shown)}"
    lines = [
        "",
        *outcome(summary, reason),
        *next_commands(
            folder.shown,
            policy=f"{folder.shown}/{folder.best_policy.name}" if folder.best_policy.exists() else "",
            resume=resume if latest(folder.checkpoints) is not None else "",
        ),
    ]
    if input_fault:
        name, what = input_fault
        lines += [f"its log: {folder.logs / name}.log", f"{name}: {what}"]
    elif failures:
        name, what = failures[0]
        lines += [f"the first failure was {name}: {what}", f"its log: {folder.logs / name}.log"]
    return [*lines, no_step] if no_step else lines


def why_no_step(folder: RunFolder, processes: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a run has taken no env step, in one line; empty where it has.

    Args:
        folder: the run's.
        processes: of the last status.
    """
    summary = json.loads(folder.summary.read_text()) if folder.summary.exists() else {}
    if not summary or summary["samples"]["produced"] > 0:
        return ""
    waiting = [
        f"{name} waited for {process['waiting_for'] or 'its own start'}"
        for name, process in processes.items()
        if process["waiting_for"] or not process["ready"]
    ]
    why = "; ".join(waiting) or "the run ended before the first rollout was sent"
    return f"no env step was taken in {summary['wall_s']:.1f} s: {why}"
