"""The environment engine: a batch of any environments, stepped near the limit of the core.

``probe`` returns the spec of an environment, ``try_out`` resets and steps it, ``make`` returns a batch.
Importing this module imports neither Gymnasium nor MuJoCo: learners need the spec alone.
"""

from spreeze_zmq.envs.make import make, probe, try_out
from spreeze_zmq.envs.spec import EnvironmentSpec

__all__ = ["EnvironmentSpec", "make", "probe", "try_out"]
