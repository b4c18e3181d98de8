"""What an environment's module does where the workers import it before they are forked."""

import sys

import numpy as np

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
