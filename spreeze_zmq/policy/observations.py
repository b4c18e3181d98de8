"""Observations as an environment gives them to the rows that a network takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.errors import WireError
from spreeze_zmq.policy.description import counts, number
from spreeze_zmq.policy.frame_stack import FrameStack

Floats = NDArray[np.float32]


class ObservationScaling:
    """Observations of any shape and dtype, or stacks of them, to float32 rows, normalised where the
    description asks for it.

    Attributes:
        shape: of one observation of the environment.
        size: numbers in a row.
        normalize: whether rows are normalised.
        clip: normalised numbers stay within -clip to clip.
        mean: ``[size]``, subtracted.
        std: ``[size]``, divided by.
    """

    def __init__(self, about: Mapping[str, Any], arrays: Mapping[str, Floats]):
        self.shape = counts(about, "shape")
        stack = FrameStack.described(about).stack
        self.size = stack * math.prod(self.shape)
        self._takes = "observations" if stack == 1 else f"stacks of {stack} observations"
        self.normalize = bool(about["normalize"])
        if self.normalize:
            self.clip = np.float32(number(about, "clip"))
            self.mean = arrays["observation_mean"].reshape(self.size)
            self.std = arrays["observation_std"].reshape(self.size)
            if not (self.std > 0).all():
                raise ValueError("observation_std must be positive")

    def __call__(self, obs: NDArray[Any]) -> Floats:
        """``[N, *shape]``, or what :class:`FrameStack` makes of it, to ``[N, size]``; may be the caller's own
        memory.

        Raises:
            WireError: ``bad_policy``, where the observations are of another size.
        """
        if obs.size != len(obs) * self.size:
            raise WireError(
                "bad_policy",
                f"the policy takes {self._takes} of shape {list(self.shape)}, they are {list(obs.shape[1:])}",
            )
        rows = obs.reshape(len(obs), self.size)
        if not self.normalize:
            return rows.astype(np.float32, copy=False)
        scaled: Floats = np.subtract(rows, self.mean, dtype=np.float32)
        scaled /= self.std
        np.clip(scaled, -self.clip, self.clip, out=scaled)
        return scaled
