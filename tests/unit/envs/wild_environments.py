"""Environments that do to their process what simulators do."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Graph, Sequence, Text, Tuple

from tests.unit.envs.mistaken_environments import Right

#: The program that some of them start.
SIMULATOR = "sleep 98765"


class Elsewhere(Right):
    """Changes the working folder, as to find its assets, and more of the process."""

    def __init__(self):
        super().__init__()
        os.chdir("/")
        os.environ["WILD"] = "1"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        np.seterr(all="raise")


class Threads(Right):
    """Leaves a thread that is no daemon, and one that close() waits for no longer."""

    def __init__(self):
        super().__init__()
        threading.Thread(target=time.sleep, args=(10_000,)).start()


class Programs(Right):
    """Starts a simulator and leaves it running; the second one has left its process group."""

    def __init__(self):
        super().__init__()
        for own_session in (False, True):
            subprocess.Popen(SIMULATOR.split(), start_new_session=own_session)


class Tidy(Right):
    """Ends its simulator at the end of the process."""

    def __init__(self):
        super().__init__()
        simulator = subprocess.Popen(SIMULATOR.split())
        atexit.register(simulator.kill)


class BadClose(Right):
    """Cannot be closed."""

    def close(self):
        """Do it."""
        raise RuntimeError("not connected to the physics server")


class SlowClose(Right):
    """Waits for its simulator for ever."""

    def close(self):
        """Do it."""
        time.sleep(1000)


class Hangs(Right):
    """Its simulator does not answer."""

    def reset(self, *, seed=None, options=None):
        """Do it."""
        subprocess.Popen(SIMULATOR.split())
        time.sleep(1000)


class Crashes(Right):
    """Its simulator has a bug."""

    def step(self, action):
        """Do it."""
        os.kill(os.getpid(), signal.SIGSEGV)


class Exits(Right):
    """Its simulator thinks that the program is its own."""

    def step(self, action):
        """Do it."""
        sys.exit(3)


class Leaves(Right):
    """The same, more roughly."""

    def __init__(self):
        os._exit(3)


class Asserts(Right):
    """Has an assertion without a message."""

    def __init__(self):
        assert 1 + 1 == 3


class Loud(Right):
    """Prints."""

    def __init__(self):
        super().__init__()
        print("starting the simulator")


class Mission(gymnasium.Space):
    """A class of space of the user's own."""

    def sample(self, mask=None, probability=None):
        """One mission."""
        return "go"

    def contains(self, x):
        """Any text."""
        return isinstance(x, str)


class Broken(gymnasium.Space):
    """One whose methods raise."""

    def __getattribute__(self, name):
        if name in ("sample", "contains", "is_np_flattenable", "shape"):
            raise RuntimeError("not written yet")
        return super().__getattribute__(name)


BOX = Box(-1, 1, (3,), np.float32)
SPACES = {
    "mission": Dict({"image": BOX, "mission": Mission()}),
    "nested": Dict({"a": Tuple([BOX, Dict({"b": Graph(BOX, None)})])}),
    "broken": Dict({"a": BOX, "b": Broken()}),
    "sequence": Sequence(BOX),
    "text": Dict({"a": BOX, "b": Text(5)}),
    "number": 3,
    "none": None,
    "old": type("Box", (), {"shape": (3,)})(),
    "scalar": Box(-1, 1, (), np.float32),
    "empty": Box(-1, 1, (0,), np.float32),
}


class Spaced(Right):
    """One with a space of a name."""

    def __init__(self, name, of="observation"):
        super().__init__()
        setattr(self, f"{of}_space", SPACES[name])


class Typed(Right):
    """Observes a number for each character of the name of its argument's type."""

    def __init__(self, given):
        super().__init__()
        self.observation_space = Box(-1, 1, (len(type(given).__name__),), np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        """Go on."""
        return self.observation_space.sample(), *super().step(action)[1:]
