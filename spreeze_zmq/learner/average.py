"""The average of a policy's weights over its last updates, which may be evaluated and saved instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class PolicyAverage:
    """A moving average on the host whose span grows with the run: the share ``s`` of all updates so far.

    From ``t`` to ``u`` updates it keeps the part ``(t / u)^(1 / s)`` of itself, so that its weights fall as a
    power of the updates, as in Karras et al. 2023 (arXiv 2312.02696, equation 3): the same share of a run of
    a minute and of one of a day, and hardly more than the newest weights where a run begins.

    Args:
        share: ``s``, above 0 to 1; 0 for no average.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._mean: NDArray[np.float32] | None = None
        self._updates = 0

    def take(self, weights: NDArray[np.float32], updates: int) -> NDArray[np.float32] | None:
        """The average with these weights ``[P]`` after so many updates, which is never written again; None
        where there is to be none.
        """
        if not self._share:
            return None
        if self._mean is None or self._mean.shape != weights.shape:
            self._mean = weights.copy()
        elif updates > self._updates:
            kept = np.float32((self._updates / updates) ** (1 / self._share))
            self._mean = weights + kept * (self._mean - weights)
        self._updates = updates
        return self._mean

    def get_state(self) -> dict[str, Any]:
        """Of types that torch reads without running code; empty where there is no average."""
        if self._mean is None:
            return {}
        return {"mean": torch.from_numpy(self._mean.copy()), "updates": self._updates}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`get_state`; from an empty one with the weights that come next."""
        self._mean = state["mean"].numpy().copy() if self._share and state else None
        self._updates = state.get("updates", 0)
