"""Resolves "auto" to a number of processes or threads, and what that number rests on."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection
from pathlib import Path

from spreeze_zmq.base import machine
from spreeze_zmq.base.importing import folder_now
from spreeze_zmq.base.once import alone
from spreeze_zmq.base.trust import module_of
from spreeze_zmq.envs import EnvironmentSpec, Timing
from spreeze_zmq.plan.processes import Count
from spreeze_zmq.plan.roles import (
    LEARNERS,
    MEMBER,
    MOST_LAUNCHED,
    MOST_PROCESSES,
    SAMPLER,
)
from spreeze_zmq.plan.topology import algorithm
from spreeze_zmq.plan.topology.tables import Mistakes

log = logging.getLogger("spreeze")

#: Upper bound of "auto" samplers on a machine of fewer cores: an environment that waits needs no core.
MAX_SAMPLERS_ON_FEW_CORES = 8
#: "auto" threads of a learner that nobody measures: the updates of one model hardly use more cores.
MOST_UNMEASURED_THREADS = 2
#: Two measurements of one environment differ by less than this factor; with more it is no longer the same.
SAME_STEP = 2.0
#: Longest wait for another process that looks up or writes such a measurement.
FILE_S = 10.0
#: Of which known times this process has said that they decide otherwise than today's: a command loads a
#: topology once for each of its runs.
_said: set[Path] = set()


def most_samplers(roles: Collection[str], num_groups: int, *, by_hand: bool) -> int:
    """How many samplers a run has room for beside the processes of its other roles.

    Args:
        roles: of the run.
        num_groups: of which each but the first is a process here.
        by_hand: somebody starts the samplers, and not the launcher.
    """
    others = sum(num_groups - 1 if role == MEMBER else 1 for role in roles if role != SAMPLER)
    return (MOST_PROCESSES if by_hand else MOST_LAUNCHED) - others


def check_count(written: int | list[int] | str, most: int, mistakes: Mistakes) -> None:
    """Note a number of samplers, or the end of its range, that a run has no room for."""
    if not isinstance(written, str) and (high := written if isinstance(written, int) else written[1]) > most:
        problem = (
            f"expected at most {most:,}, got {high:,}: a run has room for no more beside its other roles"
        )
        mistakes.add(("components", SAMPLER, "count"), problem, "write more components.sampler.envs of each")


def resolve_count(
    role: str,
    written: int | list[int] | str,
    cores: int,
    num_learners: int,
    most: int = MOST_LAUNCHED,
    of_use: int = MOST_PROCESSES,
) -> Count:
    """Number of processes at the start, and its range: samplers get the cores that learners leave, and are
    at most ``most``; unless a number is written, they begin with at most ``of_use``.
    """
    automatic = min(max(1, cores - num_learners), of_use) if role == SAMPLER else 1
    if isinstance(written, int):
        return Count(written, written, written)
    if isinstance(written, str):
        highest = max(cores, MAX_SAMPLERS_ON_FEW_CORES) if role == SAMPLER else 1
        return Count(min(automatic, most), 1, min(highest, most))
    low, high = written
    return Count(min(max(automatic, low), high), low, high)


def resolve_threads(
    role: str, written: int | str, cores: int, num_samplers: int, num_learners: int, device: str = "cpu"
) -> int:
    """Threads of each process: learners share the cores that samplers leave, of which they have as many as
    are measured to pay; those on a GPU, and other roles, have one.
    """
    if isinstance(written, int):
        return written
    if role not in LEARNERS or device != "cpu":
        return 1
    return max(1, (cores - num_samplers) // num_learners)


def usual_step_s(env: EnvironmentSpec, timing: Timing) -> float:
    """Seconds for a step of an environment, by which it is slow or not. Where that is close, these are those
    that were measured here first, as long as they are about right, so that the runs of a study and one that
    is started again have as many samplers; a line says where they decide otherwise than today's.
    """
    slow_s, step_s = algorithm.SLOW_STEP_S, timing.step_s
    if not slow_s / SAME_STEP < step_s < slow_s * SAME_STEP:
        return step_s
    folder = folder_now(module_of(env.id).partition(".")[0], sys.path)
    about = {"env": env.id, "folder": folder, "env_kwargs": env.kwargs, "engine": timing.backend}
    subject = {"what": "seconds of a step", "cpu": machine.cpu_model(), **about}
    try:
        file = machine.file_of(subject)
    except OSError:
        return step_s
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(file, most_s=FILE_S))
            can_be_written = True
        except OSError:
            can_be_written = False
        known = machine.recall(subject, float)
        if known is None or not step_s / SAME_STEP <= known <= step_s * SAME_STEP:
            if can_be_written:
                machine.remember(subject, step_s)
            return step_s
    if (known > slow_s) != (step_s > slow_s) and file not in _said:
        _said.add(file)
        log.warning(
            "a step of %s took %.2g ms, and %.2g ms when it was measured first, by which the samplers are as "
            "many as then; delete %s to measure it again",
            *(env.id, 1e3 * step_s, 1e3 * known, file),
        )
    return known
