"""The environment engine: a batch of any environments, stepped near the limit of the core.

``probe`` tells what the system must know of an environment, ``make`` makes a batch of them. Importing this
module imports neither Gymnasium nor MuJoCo: launcher and learners need the spec alone.
"""

from .make import make, probe
from .spec import EnvironmentSpec

__all__ = ["EnvironmentSpec", "make", "probe"]
