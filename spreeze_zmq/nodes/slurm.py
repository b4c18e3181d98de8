"""Slurm: the batch script of a run on several nodes, and the nodes of the job that a launcher is part of."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import PROGRAM

#: ``exec``: the shell's SIGINT is the run's; the address is that from which the second node is reached.
SCRIPT = """\
#!/bin/bash
# For sbatch: the first node of the job trains, the others run samplers. Change these lines as you need it:
#SBATCH --job-name={name}
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
# (cores of each node: that many samplers on each of the others)
#SBATCH --time=08:00:00
#SBATCH --signal=B:INT@180
# (three minutes before the end the run is interrupted: it writes a last checkpoint)
#SBATCH --output={name}-%j.out
#SBATCH --open-mode=append
##SBATCH --gres=gpu:1
# (one # less for learners on a GPU; --account and --partition where your cluster asks for them)
set -eu
# what your cluster needs before a program starts, such as: module load python

other=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 2p)
address=$({python} -P -c '
import socket, sys
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect((sys.argv[1], 9))
print(probe.getsockname()[0])' "$other")

# Back from the queue, after a preemption or a node's failure, the job goes on from its newest checkpoint:
first="runs/{name}-$SLURM_JOB_ID"; folder=$first; before=; life=1
while [ -e "$folder" ]; do
  if compgen -G "$folder/checkpoints/*/MANIFEST.json" > /dev/null; then before=$folder; fi
  life=$((life + 1)); folder=$first-$life
done
exec {command} --listen "$address" --nodes slurm --run-dir "$folder" ${{before:+--resume "$before"}}
"""


def script(name: str, words: Sequence[str]) -> str:
    """The batch script of a run.

    Args:
        name: the run's.
        words: the command line that makes its plan, without the program.
    """
    beside = Path(sys.executable).with_name("spreeze-launch")
    program = str(beside) if beside.exists() else beside.name
    python = shlex.quote(sys.executable)
    return SCRIPT.format(name=name, python=python, command=shlex.join((program, *words)))


def other_nodes() -> list[str]:
    """The job's nodes but this one.

    Raises:
        InputError: this is no job, or one of a single node.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes or shutil.which("scontrol") is None:
        raise InputError(
            "--nodes slurm: this is no job of Slurm: with --dry-run it prints the script of one, for sbatch"
        )
    words = ("scontrol", "show", "hostnames", nodes)
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    if said.returncode:
        raise InputError(f"--nodes slurm: {shlex.join(words)}: {said.stderr.strip()}")
    here = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    others = [name for name in said.stdout.split() if name != here]
    if not others:
        raise InputError(f"--nodes slurm: the job has no node but {here}: sbatch --nodes=2, or more")
    return others


def over_srun(node: str, head: str) -> tuple[str, ...]:
    """The command that has a node of the job join."""
    cpus = os.environ.get("SLURM_CPUS_PER_TASK")
    cores = (f"--cpus-per-task={cpus}",) if cpus else ()
    step = ("srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *cores)
    return (*step, *PROGRAM, "spreeze_zmq.commands.spreeze", "join", head)
