"""Texts that the launcher shows its user about the run and its processes, while it goes on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spreeze_zmq.base.machine import available_cores, program
from spreeze_zmq.base.parent_death import is_within
from spreeze_zmq.broker.machines import in_words
from spreeze_zmq.nodes.node import Node
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, EVALUATOR, NODE, OBSERVER, SAMPLER
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.terminal.words import mistakes, stage_of
from spreeze_zmq.supervisor import Exited
from spreeze_zmq.wire.channels import SocketFolder

AS_STATED = "as the topology says"
#: Who may take longer to end, and what is said then.
AWAITED = {
    EVALUATOR: "the last policy is evaluated (Ctrl-C to leave it out)",
    OBSERVER: "callbacks take what has come last (Ctrl-C to leave it out)",
}


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
    runs = in_words(node.wanted or node.processes) or "nothing"
    return f"{node.host} has joined as {node.name}: {node.cores} cores; it runs {runs}"


def prepares(node: Node) -> str:
    """That a machine is not ready yet, in one line."""
    return f"{called(node)} unpacks and builds what the run needs; nothing runs there before"


def waits(name: str, wanted: str, any_joined: bool) -> str:
    """That a process waits for a machine, in one line."""
    if wanted == NODE:
        return f"{name} waits for a machine that joins (placement)"
    has = "none of those that have joined is one" if any_joined else "none has joined"
    return f"{name} waits for a machine called {wanted} (placement): {has}"


def gone(node: Node, how: str, names: Sequence[str]) -> str:
    """That a machine is gone, in one line."""
    lost = f"; with it {', '.join(names)}" if names else ""
    return f"{called(node)} is gone: {how}{lost}"


def owed(nodes: Sequence[Node], most_s: float) -> str:
    """That the end waits for what machines that were cut off have sent, in one line."""
    hosts = " and ".join(node.host for node in nodes)
    return f"waiting for what {hosts} sent before the link was cut (at most {most_s:.0f} s)"


def called(node: Node) -> str:
    """A machine, by both of its names."""
    return f"{node.host} ({node.name})"


def at_first(plan: Plan, remembered: str) -> tuple[str, ...]:
    """What is worth a line as the processes start; ``remembered`` as of :func:`why_count`."""
    is_pinned = plan.pinning.get("cpus") or plan.balance.pin == "always"
    pinning = plan.pinning["reason"] if is_pinned else ""
    count = first_count(plan, why_count(plan, SAMPLER, remembered))
    return tuple(filter(None, (pinning, count, not_evaluated(plan))))


def not_evaluated(plan: Plan) -> str:
    """Why the shipped evaluator cannot evaluate this run; empty where it can."""
    if not plan.environment.described or plan.components[EVALUATOR].use != EVALUATOR:
        return ""
    return (
        f"nothing is evaluated: no Python program makes {plan.run.env}; the newest policy is saved at the end"
    )


def why_count(plan: Plan, role: str, remembered: str) -> str:
    """The source of a role's first count; ``remembered`` says how an earlier run, or the time of a step, gave
    it, and is empty where neither did.
    """
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
        if is_within(heard.get("pid"), pid):
            return stage_of(heard)
        if self._joined.get(name) != pid:
            holder = SocketFolder.holder(self._sockets.path, name)
            if holder is not None and is_within(holder.pid, pid):
                self._joined[name] = pid
        return ahead if self._joined.get(name) == pid else "importing"


def fault_in(event: Exited) -> str:
    """Why a process ended unexpectedly: the message of an error of ours, which is printed last, behind the
    role; otherwise how it ended and its last words.
    """
    role = event.name.rpartition("-")[0]
    _, separator, message = f"\n{event.words}".rpartition(f"\n{role}: ")
    return message.strip() if separator else f"{event.how}\n{event.words}"


def why_silent(name: str, process: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Why a process is not ready or does not report, according to its row of the status and to refusals."""
    refused = [row["line"] for row in mistakes(status) if row["sender"] in (name, "")]
    if process.get("waiting_for"):
        return f"it waits for {process['waiting_for']}"
    if refused:
        return "; ".join(refused[:2])
    return "it reports, but has sent no hello" if process else "nothing has come from it"
