"""Processes have all of their cores with the variables by which a cluster binds the threads of programs."""

import ctypes
import importlib
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from spreeze_zmq import envs
from spreeze_zmq.base.unbound import BINDING
from spreeze_zmq.supervisor.process import GroupSpawner, ProcessSpec
from tests.unit.supervisor.lives import until

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")


def openmp():
    """The OpenMP library that torch has loaded here: what binds the thread that imports torch, without the
    seconds that the rest of it takes.
    """
    importlib.import_module("torch")  # not by the processes that import this file
    files = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return next(file for file in files if "omp" in Path(file).name.partition(".")[0])


LOADS = "import ctypes, os; ctypes.CDLL({!r}); print(len(os.sched_getaffinity(0)))"


@pytest.fixture(params=["OMP_PROC_BIND=true", "GOMP_CPU_AFFINITY=0", "OMP_PLACES=cores"], autouse=True)
def binding(request, monkeypatch):
    """One of the variables, as a cluster's shell has it."""
    for name in BINDING:
        monkeypatch.delenv(name, raising=False)
    name, _, value = request.param.partition("=")
    monkeypatch.setenv(name, value)


class Cores(gymnasium.Env):
    """Observes the number of CPUs that its process may run on once torch's library of threads is loaded."""

    observation_space = Box(0, np.inf, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, library):
        ctypes.CDLL(library)

    def reset(self, *, seed=None, options=None):
        """The observation never changes."""
        return np.array([len(os.sched_getaffinity(0))], np.float32), {}

    def step(self, action):
        """Nothing happens."""
        return self.reset()[0], 0.0, False, False, {}


def test_a_process_of_a_run_keeps_its_cores(tmp_path):
    """Samplers load torch for images, memories and algorithms of a user's own."""
    spec = ProcessSpec("sampler-0", (sys.executable, "-c", LOADS.format(openmp())), tmp_path / "log")
    spawner = GroupSpawner()
    process = spawner.spawn(spec)
    until(lambda: process.poll() is not None, "the end of the process", 240)
    spawner.close()
    assert int(spec.log_path.read_text().splitlines()[-1]) == len(os.sched_getaffinity(0))


def test_a_worker_of_environments_keeps_its_cores():
    """In a script of the user's own, too."""
    batch = envs.make(f"{__name__}:Cores", 1, num_workers=1, library=openmp())
    try:
        assert batch.reset()[0].item() == len(os.sched_getaffinity(0))
    finally:
        batch.close()


def test_a_command_keeps_its_cores():
    """What it starts inherits them: an algorithm of the user's own is imported, with torch, to read it."""
    code = "from spreeze_zmq.commands import begin; begin.leave = int; begin.spreeze(); "
    code += LOADS.format(openmp())
    done = subprocess.run(
        [sys.executable, "-c", code, "options"], capture_output=True, text=True, check=False, timeout=240
    )
    assert int(done.stdout.splitlines()[-1]) == len(os.sched_getaffinity(0)), done.stderr
