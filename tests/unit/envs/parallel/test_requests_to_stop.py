"""What ends a batch's process comes to its workers and their server, too, and is not for them."""

import os
import signal
import subprocess

from spreeze_zmq.envs.parallel import pool
from spreeze_zmq.envs.processes import interpreter

OWN = "tests.unit.envs.own_environments"


def test_workers_play_on_after_a_request_to_stop(make):
    """It goes to the whole group of a process, which may have steps left to take."""
    env = make(f"{OWN}:Count", 4, num_workers=2, length=50, max_failures=0)
    env.reset(seed=1)
    for pid in (env.pool.server.pid, *env.slots.pids.tolist()):
        os.kill(pid, signal.SIGTERM)
    for step in range(5):
        assert env.step(env.action_space.sample())[0][:, 0].tolist() == [step + 1.0] * 4


def test_workers_are_made_also_where_that_request_comes_as_their_server_begins(make, monkeypatch):
    """Before it has loaded the modules that heed it."""

    def begin_and_stop(*arguments, **options):
        server = interpreter(*arguments, **options)
        for number in (signal.SIGINT, signal.SIGTERM):
            server.send_signal(number)
        return server

    monkeypatch.setattr(pool, "interpreter", begin_and_stop)
    env = make(f"{OWN}:Count", 4, num_workers=2, length=50, max_failures=0)
    env.reset(seed=1)
    assert env.step(env.action_space.sample())[0][:, 0].tolist() == [1.0] * 4


def test_a_worker_that_has_ended_is_not_killed_once_more(make):
    """Its server may have reaped it just before it says so."""
    env = make(f"{OWN}:Count", 2, num_workers=2)
    over = subprocess.Popen(["true"])
    over.wait()
    worker, env.slots.pids[0] = env.slots.pids[0], over.pid
    env.pool.kill(0)
    env.slots.pids[0] = worker
