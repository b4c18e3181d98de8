"""A process that no longer answers says where in the user's code it stands, before it is killed."""

import signal
import subprocess
import sys
import time

import pytest

from spreeze_zmq.supervisor.standing import in_words, place_of

SLOW = """import gymnasium, time
from gymnasium.spaces import Box

class Slow(gymnasium.Env):
    observation_space = action_space = Box(-1, 1, (1,))

    def __init__(self, where):
        self.where = where
        self.work("make")

    def work(self, where):
        if where == self.where:
            open("there", "w").close()
            time.sleep(60)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.work("reset")
        return self.observation_space.sample(), {}

    def step(self, action):
        self.work("step")
        return self.observation_space.sample(), 0.0, False, False, {}
"""
PLAY = """
import sys
from spreeze_zmq import envs
from spreeze_zmq.supervisor import standing
standing.answer()
batch = envs.make("slow_one:Slow", 2, where=sys.argv[1], max_episode_steps=9)
batch.reset()
batch.step(batch.random_actions())
"""


@pytest.fixture
def started(tmp_path):
    """Start a program in an empty folder, whose log is there; ends it."""
    running = []

    def start(*command):
        with (tmp_path / "log").open("w") as log:
            running.append(subprocess.Popen(command, cwd=tmp_path, stderr=log, stdout=log))
        return running[0]

    yield start
    running[0].kill()
    running[0].wait()


@pytest.mark.parametrize(("where", "function"), [("make", "__init__"), ("reset", "reset"), ("step", "step")])
def test_it_is_named_what_an_environment_was_asked_for(started, tmp_path, where, function):
    """Through Gymnasium's wrappers, and with the innermost line of the user's file."""
    (tmp_path / "slow_one.py").write_text(SLOW)
    process = started(sys.executable, "-c", PLAY, where)
    until_s = time.monotonic() + 60
    while not (tmp_path / "there").exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    time.sleep(0.2)  # from the file into the sleep
    line = SLOW.splitlines().index("            time.sleep(60)") + 1
    said = place_of(process.pid, tmp_path / "log")
    assert said == f"in {function}() at {tmp_path}/slow_one.py:{line}"


@pytest.mark.parametrize("stopped", [True, False])
def test_one_that_cannot_say_it_is_not_waited_for(started, tmp_path, stopped):
    """One that is stopped, and one of another language, which ends by the signal."""
    process = started("sleep", "60")
    if stopped:
        process.send_signal(signal.SIGSTOP)
    began_s = time.monotonic()
    assert place_of(process.pid, tmp_path / "log") == ""
    assert time.monotonic() - began_s < 5


def test_a_stack_without_code_of_the_users_is_named_by_its_innermost_call():
    """Of a library's environment that is what this package called."""
    library = "/lib/site-packages/ale/env.py"
    stack = f'Current thread 0x1 (most recent call first):\n  File "{library}", line 7 in act\n'
    stack += f'  File "{library}", line 9 in step\n  File "<frozen runpy>", line 88 in _run_code\n'
    assert in_words(stack) == f"in step() at {library}:7"
    assert in_words("2026-11-27 INFO nothing of it\n") == ""
