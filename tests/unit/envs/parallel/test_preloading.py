"""What an environment's module does where the workers import it before they are forked."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

#: As modules with a runtime of their own do: a thread from its import on, which each reset asks.
SERVED = """
import queue, threading
from tests.unit.envs.own_environments import Count

asked, answered = queue.SimpleQueue(), queue.SimpleQueue()

def serve():
    while (number := asked.get()) is not None:
        answered.put(number)

threading.Thread(target=serve, daemon=True).start()

class Served(Count):
    def reset(self, **options):
        asked.put(0)
        answered.get()
        return super().reset(**options)
"""


def test_a_module_that_starts_a_thread_at_import_has_it_in_each_worker(make, tmp_path, monkeypatch):
    """A fork would lack it, and wait for it for ever; a worker that replaces another one has it too."""
    (tmp_path / "served_environments.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make("served_environments:Served", 2, num_workers=2, step_timeout_s=5)
        env.reset()
        for worker in (0, 1):
            env.pool.kill(worker)
        assert env.step(np.zeros((2, 1)))[3].all()
    finally:
        sys.modules.pop("served_environments").asked.put(None)


#: At import, a program that ends at once and one that stays; both are listed in the file ``started``.
STARTED = """
import os, pathlib, subprocess, threading, time
from tests.unit.envs.own_environments import Count as Started

programs = [subprocess.Popen(["sleep", each]) for each in ("0", "600")]
with (pathlib.Path(__file__).parent / "started").open("a") as file:
    file.write(f"{os.getpid()} {programs[0].pid} {programs[1].pid}\\n")
"""
THREAD = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


@pytest.mark.parametrize("threads", [THREAD, ""], ids=["with a thread", "alone"])
def test_programs_that_a_module_starts_at_import_harm_no_server_of_workers(
    threads, make, tmp_path, monkeypatch
):
    """Their ends are those of no worker, and where the server begins again none of its first import stays."""
    (tmp_path / "started_programs.py").write_text(STARTED + threads)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make("started_programs:Started", 2, num_workers=2, step_timeout_s=60)
        env.reset()
        server = psutil.Process(int(env.slots.pids[0])).ppid()
        [(ended, stays)] = [programs for who, *programs in _started(tmp_path) if who == server]
        until_s = time.monotonic() + 60.0
        while psutil.pid_exists(ended) and time.monotonic() < until_s:
            env.pool.kill(0)  # so that the server looks who has ended
            assert env.step(np.zeros((2, 1)))[3][0]
        assert not psutil.pid_exists(ended)
        assert psutil.pid_exists(stays) == (not threads)
    finally:
        sys.modules.pop("started_programs", None)
        for _, *programs in _started(tmp_path):
            for pid in filter(psutil.pid_exists, programs):
                os.kill(pid, 9)


def _started(folder: Path):
    """Of each process that has imported the module, its id and those of the two programs."""
    return [[*map(int, line.split())] for line in (folder / "started").read_text().splitlines()]
