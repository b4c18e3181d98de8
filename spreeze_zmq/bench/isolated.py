"""Runs a section of ``spreeze bench`` in a process that is set up as the launcher sets up a learner."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from spreeze_zmq.autoscale.sizing import KEEP_FREED_MEMORY
from spreeze_zmq.bench.figures import Figure, Job
from spreeze_zmq.errors import ComponentFailed, PeerTimeout

#: Beyond the time that was asked for, until the process counts as hung.
TIMEOUT_S = 240.0


def environment() -> dict[str, str]:
    """Variables of a learner with one thread, which finds modules where the command was given."""
    found = filter(None, (os.environ.get("PYTHONPATH"), str(Path.cwd())))
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**KEEP_FREED_MEMORY, **threads, "PYTHONPATH": os.pathsep.join(found)}


def figures_of(section: str, job: Job) -> list[Figure]:
    """What ``figures(job)`` of a section's module returns in a process of its own.

    Raises:
        ComponentFailed: the process failed; holds its last words.
        PeerTimeout: it did not end; it is killed.
    """
    timeout_s = job.seconds + TIMEOUT_S
    command = (sys.executable, "-m", "spreeze_zmq.bench.isolated", section, json.dumps(asdict(job)))
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment()}, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise PeerTimeout("bench", section, "its figures", timeout_s) from None
    if done.returncode:
        raise ComponentFailed(f"{section}: exit code {done.returncode}\n{done.stderr[-2000:].rstrip()}")
    return [Figure(**fields) for fields in json.loads(done.stdout.splitlines()[-1])]


def main(arguments: Sequence[str]) -> None:
    """The process: measure, and print the figures."""
    section, job = arguments
    module, wanted = importlib.import_module(f"spreeze_zmq.bench.{section}"), Job(**json.loads(job))
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as in a learner
    if wanted.device != "cpu":
        torch.cuda.set_device(wanted.device)
    print(json.dumps([asdict(figure) for figure in module.figures(wanted)]))


if __name__ == "__main__":
    main(sys.argv[1:])
