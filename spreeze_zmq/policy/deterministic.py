"""One action for each observation, with noise of its own in each environment (TD3)."""

from __future__ import annotations

import numpy as np

from spreeze_zmq.policy.head import Actions, Box, Drawn, Floats, evenly_spread


class Deterministic:
    """``tanh(output) + sigma * noise`` within [-1, 1], stretched to the action bounds.

    ``sigma`` grows evenly from ``noise_min`` in the first of the run's environments to ``noise_max`` in the
    last one (Ape-X, arXiv 1803.00933, spreads its exploration over actors in the same spirit).
    """

    def __init__(self, box: Box, noise_min: float, noise_max: float) -> None:
        self.num_outputs = box.num
        self._box = box
        self._noise_min, self._noise_max = np.float32(noise_min), np.float32(noise_max)
        self.uniform = box.uniform

    def mode(self, output: Floats) -> Floats:
        """The action of each row ``[N, A]`` without noise."""
        return self._box.stretch(np.tanh(output))

    def draw(self, output: Floats, rng: np.random.Generator, place: Floats | None, log_prob: bool) -> Drawn:
        """An action for each row ``[N, A]``, from ``[N, A]`` standard normal numbers.

        Raises:
            ValueError: a density is wanted; clipped noise has none.
        """
        if log_prob:
            raise ValueError("a deterministic policy has no log_prob, but it is asked for")
        places = evenly_spread(len(output)) if place is None else np.asarray(place, np.float32)
        sigma = self._noise_min + (self._noise_max - self._noise_min) * places
        unit = rng.standard_normal(output.shape, np.float32)
        unit *= sigma[:, None]
        unit += np.tanh(output)
        np.clip(unit, -1.0, 1.0, out=unit)
        return self._box.stretch(unit), None

    def env_action(self, action: Actions) -> Actions:
        """The same: they never leave the bounds."""
        return action
