"""The environment engine: a batch of any environments, stepped near the limit of the core.

``look`` makes, resets, steps and closes an environment in a process of its own, ``probe`` returns the spec
that this gives, ``make`` returns a batch, and ``remade`` one of an environment that a run knows already.
Importing this module imports neither Gymnasium nor MuJoCo: learners need the spec alone.
"""

from spreeze_zmq.envs.make import make, probe, try_out
from spreeze_zmq.envs.probing import look
from spreeze_zmq.envs.same import remade
from spreeze_zmq.envs.seen import Look, Timing
from spreeze_zmq.envs.spec import EnvironmentSpec

__all__ = ["EnvironmentSpec", "Look", "Timing", "look", "make", "probe", "remade", "try_out"]
