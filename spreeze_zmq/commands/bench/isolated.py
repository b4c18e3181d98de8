"""Runs a section of ``spreeze bench`` in a process with the environment of a learner."""

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

from spreeze_zmq.base.aside import printing_aside
from spreeze_zmq.base.errors import ComponentFailed, InputError, PeerTimeout
from spreeze_zmq.base.importing import PROGRAM
from spreeze_zmq.base.trust import make_importable
from spreeze_zmq.commands.bench.figures import Figure, Job
from spreeze_zmq.nn.device import claim
from spreeze_zmq.supervisor.process import KEEP_FREED_MEMORY, with_threads

#: The process counts as hung after the requested time and this one.
TIMEOUT_S = 240.0


def environment() -> dict[str, str]:
    """Variables of a learner with one thread."""
    return {**KEEP_FREED_MEMORY, **with_threads(1)}


def figures_of(section: str, job: Job) -> list[Figure]:
    """The result of ``figures(job)`` of a section's module, in a process of its own.

    Raises:
        InputError: what the job names cannot be measured, such as a GPU that torch cannot use.
        ComponentFailed: the process failed; holds its last words.
        PeerTimeout: the process did not end and was killed.
    """
    timeout_s = job.seconds + TIMEOUT_S
    command = (*PROGRAM, "spreeze_zmq.commands.bench.isolated", section, json.dumps(asdict(job)))
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment()}, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise PeerTimeout("bench", section, "its figures", timeout_s) from None
    if done.returncode == InputError.exit_code:
        raise InputError(done.stderr.rstrip().rpartition("\n")[-1])
    if done.returncode:
        raise ComponentFailed(f"{section}: exit code {done.returncode}\n{done.stderr[-2000:].rstrip()}")
    return [Figure(**fields) for fields in json.loads(done.stdout)]


def main(arguments: Sequence[str]) -> None:
    """Measure in this process, and print the figures."""
    section, text = arguments
    make_importable(Path.cwd())
    module, job = importlib.import_module(f"spreeze_zmq.commands.bench.{section}"), Job(**json.loads(text))
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as in a learner
    claim(job.device, "--device")
    with printing_aside():
        figures = module.figures(job)
    print(json.dumps([asdict(figure) for figure in figures]))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(error.exit_code)
