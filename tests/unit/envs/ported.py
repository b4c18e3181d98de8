"""An environment that needs a number of its own, in a file that workers import at once."""

import numpy as np

from tests.unit.envs.mistaken_environments import Right


class Port(Right):
    """A simulator of which one alone can have a port; it observes that."""

    taken: set[int] = set()  # noqa: RUF012

    def __init__(self, port=5000, name="", steps=3):
        super().__init__()
        self.port, self.name = port, name
        if port in Port.taken:
            raise OSError(98, "Address already in use")
        Port.taken.add(port)

    def reset(self, *, seed=None, options=None):
        """The port as an observation."""
        return np.full(3, (self.port - 5000) / 100, np.float32), {}

    def close(self):
        """Free the port."""
        Port.taken.discard(self.port)
