"""The start section of ``spreeze bench``: a run that ends at its first update, beside importing torch."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from spreeze_zmq import algorithms
from spreeze_zmq.base.errors import ComponentFailed, PeerTimeout
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.commands.bench.figures import Figure, Job, Rate, Section, in_turn, paired
from spreeze_zmq.nn.native import library

#: A command counts as hung after this time.
TIMEOUT_S = 120.0
MINUTE_S = 60.0


def measure(job: Job) -> Section:
    """Measure for about ``job.seconds``, at least once each after a start that only fills the caches.

    Raises:
        ComponentFailed: the run failed; holds its last words.
        PeerTimeout: it did not end and was killed.
    """
    library.prepare(lambda line: None)  # compiled once on a machine
    ways = {"limit": lambda turn_s: once(torch_alone()), "run": lambda turn_s: whole(job)}
    rates = in_turn(ways, job.seconds, least=1)
    about = (
        f"{job.algorithm} in {job.env_id}, from Enter to the end of a run that stops after its first update, "
        "without an evaluator; limit: a Python that imports torch"
    )
    return Section("start", about, figures(rates))


def figures(rates: dict[str, list[Rate]]) -> list[Figure]:
    """By the clock, and by the CPU time of all processes."""
    found = []
    for name, unit, place in (("whole command", "starts/min", 0), ("its CPU time", "starts/CPU min", 1)):
        limits, reached = ([MINUTE_S * rate[place] for rate in rates[way]] for way in ("limit", "run"))
        figure = paired(name, unit, limits, reached)
        took = f"{MINUTE_S / figure.reached:.1f} s beside {MINUTE_S / figure.limit:.1f} s"
        found.append(paired(name, unit, limits, reached, took))
    return found


def torch_alone() -> list[str]:
    """What every learner costs at least."""
    return [sys.executable, "-P", "-c", "import torch"]


def whole(job: Job) -> Rate:
    """The rate of one run, in a folder that is removed."""
    sets = ["run.stop={trained_transitions=1}", f"components.critic_learner.device={job.device}"]
    options = algorithms.get(job.algorithm).Options()
    if hasattr(options, "learning_starts"):
        sets.append("algorithm.learning_starts=1")
    with tempfile.TemporaryDirectory(prefix="spreeze-bench-") as folder:
        return once(
            [
                *(*PROGRAM, "spreeze_zmq.commands.begin", "--env", job.env_id),
                *("--algorithm", job.algorithm, "--without", "evaluator", "--without", "visualizer"),
                *("--run-dir", f"{folder}/run", *(word for each in sets for word in ("--set", each))),
            ]
        )


def once(command: Sequence[str]) -> Rate:
    """The rate of a command that runs once, per second of wall time and of the CPU time of all its processes.

    Raises:
        ComponentFailed: it failed; holds its last words.
        PeerTimeout: it did not end and was killed.
    """
    began_s, began_cpu_s = time.perf_counter(), _children_s()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PeerTimeout("bench", "start", "the end of a run", TIMEOUT_S) from None
    if done.returncode:
        words = (done.stdout + done.stderr)[-2000:].rstrip()
        raise ComponentFailed(f"start: exit code {done.returncode}\n{words}")
    return Rate(1 / (time.perf_counter() - began_s), 1 / max(_children_s() - began_cpu_s, 1e-9))


def _children_s() -> float:
    """CPU seconds of this process's children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
