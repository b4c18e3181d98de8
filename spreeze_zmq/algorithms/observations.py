"""Observations on their way into the networks: flat rows, normalised by statistics that both halves share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.algorithms.interface import Environment
from spreeze_zmq.errors import WireError
from spreeze_zmq.frames import has_channels_last

#: Pixels 0..255 become -1..1 by the observation normaliser that the policy message carries.
PIXEL_MEAN = PIXEL_STD = 127.5
#: Normalised observations are cut off here.
CLIP = 10.0
#: An observation that hardly ever changes is not blown up by more than a hundred.
LEAST_STD = 1e-2


class RunningStatistics:
    """Mean and variance of everything seen, by the pairwise update of Chan et al. 1979.

    Float64 on the host: they are summed over more numbers than float32 can count.
    """

    def __init__(self, size: int):
        self.count = 0.0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # summed squared distances from the mean

    def add(self, rows: NDArray[Any]) -> None:
        """Take in ``[M, size]``."""
        count = len(rows)
        mean = rows.mean(0, dtype=np.float64)
        squares = np.square(rows - mean).sum(0)
        total = self.count + count
        distance = mean - self.mean
        self.mean = self.mean + distance * (count / total)
        self.squares = self.squares + squares + np.square(distance) * (self.count * count / total)
        self.count = total

    def std(self) -> NDArray[np.float64]:
        """``[size]``, at least ``LEAST_STD``; 1 before anything was seen."""
        if self.count == 0:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.squares / self.count), LEAST_STD)

    def state_dict(self) -> dict[str, Any]:
        """Copies, as tensors."""
        arrays = {"mean": self.mean, "squares": self.squares, "count": np.array(self.count)}
        return {name: torch.tensor(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self.mean, self.squares = state["mean"].numpy().copy(), state["squares"].numpy().copy()
        self.count = float(state["count"])


class ObservationRows:
    """Observations of one environment as the networks take them.

    Args:
        env: gives their shape and dtype.
        normalize: whether float observations are normalised by published statistics; pixels always are, by
            constants.
        device: where they are.
        stack: images that the networks take at once.
    """

    def __init__(self, env: Environment, normalize: bool, device: torch.device, stack: int = 1):
        self.shape, self._stack = tuple(env.obs_shape), stack
        self.size = stack * math.prod(env.obs_shape)
        self._pixels = env.obs_dtype == "uint8"
        self.learned = normalize and not self._pixels
        self.normalized = self.learned or self._pixels
        first = (PIXEL_MEAN, PIXEL_STD) if self._pixels else (0.0, 1.0)
        self._mean, self._std = (torch.full((self.size,), value, device=device) for value in first)
        mean, std = (np.full(self.size, value, np.float32) for value in first)
        self._arrays = {"observation_mean": mean, "observation_std": std}  # the same, on the host

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        """``[B, *obs_shape]``, or stacks, to float32 ``[B, size]``; may be the caller's own memory."""
        rows = obs if obs.dim() == 2 else obs.reshape(obs.shape[0], self.size)
        if self._pixels:
            # A float copy first: subtracting from bytes takes eight times as long.
            return rows.to(torch.float32, copy=True).sub_(PIXEL_MEAN).div_(PIXEL_STD)
        if self.learned:
            return rows.sub(self._mean).div_(self._std).clamp_(-CLIP, CLIP)
        return rows

    def adopt(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Take the statistics of a policy message, where they are learned.

        Raises:
            WireError: ``bad_parameters``, where they are missing or of another size.
        """
        if not self.learned:
            return
        for name, target in (("observation_mean", self._mean), ("observation_std", self._std)):
            array = arrays.get(name)
            if array is None or array.size != self.size:
                raise WireError(
                    "bad_parameters",
                    f"a policy without the {self.size} numbers of {name}: both learners must run the same "
                    "algorithm options",
                )
            self._arrays[name] = np.array(array.reshape(self.size))
            target.copy_(torch.from_numpy(self._arrays[name]))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The normaliser's arrays of a policy message; none where observations are taken as they are."""
        if not self.normalized:
            return {}
        return {name: array.copy() for name, array in self._arrays.items()}

    def description(self) -> dict[str, Any]:
        """The observation's part of the network description."""
        about = {"shape": list(self.shape), "normalize": self.normalized, "clip": CLIP}
        if self._pixels and has_channels_last(self.shape):
            about["channels_last"] = True
        return about if self._stack == 1 else {**about, "stack": self._stack}

    def state_dict(self) -> dict[str, Any]:
        """Copies of the statistics in use."""
        return {"mean": self._mean.clone(), "std": self._std.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        for name, target in (("mean", self._mean), ("std", self._std)):
            target.copy_(state[name])
            self._arrays[f"observation_{name}"] = np.array(target.cpu().numpy())
