"""The environment engine: a batch of any environments, stepped near the limit of the core.

``probe`` returns the spec of an environment, ``make`` a batch of environments. Importing this module imports
neither Gymnasium nor MuJoCo: launcher and learners need the spec alone.
"""

from spreeze_zmq.envs.make import make, probe
from spreeze_zmq.envs.spec import EnvironmentSpec

__all__ = ["EnvironmentSpec", "make", "probe"]
