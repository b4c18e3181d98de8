"""Turns observations into rows for the networks, normalised by statistics that both halves share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.frames import channels_first, has_channels_last
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.nn.fused import scaled_bytes

#: Limit of learned normalised observations, in both directions.
CLIP = 10.0
#: Smallest standard deviation of a pixel, as a share of the largest one, so that one that hardly ever changes
#: is scaled by at most a hundred.
LEAST_PIXEL_STD = 0.01
#: Largest number of images of a batch that enter the statistics.
MOST_IMAGES = 256


class RunningStatistics:
    """Mean and variance of all observations, by the pairwise update of Chan et al. 1979.

    They are float64 on the host, because float32 cannot count so far. Each pixel of an image has its own,
    which the images of a stack share. One-hot choices stay as they are.

    Args:
        env: has the observations' shape and dtype.
        stack: number of images that the networks take at once.
    """

    def __init__(self, env: EnvironmentSpec, stack: int = 1):
        self._stack, self._pixels = stack, env.obs_dtype == "uint8"
        self._channels_last = self._pixels and has_channels_last(tuple(env.obs_shape))
        self.count = 0.0
        self.mean = np.zeros(math.prod(env.obs_shape))
        self.squares = np.zeros_like(self.mean)  # summed squared distances from the mean
        self._least_std = LEAST_PIXEL_STD * largest_bytes(env)
        self._one_hot = env.spans_of("sizes")

    def add(self, obs: NDArray[Any]) -> None:
        """Add observations ``[M, *obs_shape]``; of many images only some, from each environment in turn of
        those that ``M`` is a multiple of.
        """
        chosen = obs
        if self._pixels:
            step = -(-len(obs) // MOST_IMAGES)
            while math.gcd(step, len(obs)) > 1:
                step += 1
            chosen = obs[int(self.count) % step :: step]
        rows = (channels_first(chosen) if self._channels_last else chosen).reshape(len(chosen), -1)
        mean = rows.mean(0, dtype=np.float64)
        self._join(len(rows), mean, np.square(rows - mean).sum(0))

    def merge(self, other: RunningStatistics) -> None:
        """Add all observations of another set."""
        self._join(other.count, other.mean, other.squares)

    def _join(self, count: float, mean: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        total = self.count + count
        distance = mean - self.mean
        self.mean = self.mean + distance * (count / total)
        self.squares = self.squares + squares + np.square(distance) * (self.count * count / total)
        self.count = total

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The arrays for a policy message, ``[stack * size]`` each; only after observations were added."""
        std, offset = np.sqrt(self.squares / self.count), self.mean.copy()
        scale = np.maximum(std if self._pixels else divisors(offset, std), self._least_std)
        for span in self._one_hot:  # the only choice so far would be 0, and a rare one far away
            offset[span], scale[span] = 0.0, 1.0
        mean, std32 = (np.tile(array.astype(np.float32), self._stack) for array in (offset, scale))
        return {"observation_mean": mean, "observation_std": std32}

    def sums(self) -> NDArray[np.float64]:
        """Number, sum and sum of squares of all observations, ``[1 + 2 * size]``: those of several sets of
        observations add up.
        """
        squares = self.squares + self.count * np.square(self.mean)
        return np.concatenate(([self.count], self.count * self.mean, squares))

    def adopt(self, sums: NDArray[np.float64]) -> None:
        """Continue from :meth:`sums`."""
        self.count = float(sums[0])
        total, squares = np.split(sums[1:], 2)
        self.mean = total / max(self.count, 1.0)
        self.squares = np.maximum(squares - self.count * np.square(self.mean), 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Copies, as tensors."""
        arrays = {"mean": self.mean, "squares": self.squares, "count": np.array(self.count)}
        return {name: torch.tensor(array) for name, array in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean, self.squares = state["mean"].numpy().copy(), state["squares"].numpy().copy()
        self.count = float(state["count"])


def divisors(mean: NDArray[np.float64], std: NDArray[np.float64]) -> NDArray[np.float64]:
    """What numbers that arrive as float32 are divided by once their mean is subtracted: their deviation.

    A deviation below the resolution of float32 around the mean is that of a constant and its rounding; it is
    divided by the size of the mean, or 1 if that is larger, so that it stays 0.
    """
    float32 = np.finfo(np.float32)
    constant = std <= np.maximum(np.abs(mean) * float32.eps, float32.tiny)
    return np.where(constant, np.maximum(np.abs(mean), 1.0), std)


def largest_bytes(env: EnvironmentSpec) -> NDArray[np.float64]:
    """The largest number that its space declares for each byte of an observation, ``[size]``: of one-hot
    choices 1; 0 for what is no byte.
    """
    most, are_all = float(env.obs_max or BYTE_MAX), env.obs_dtype == "uint8"
    largest = np.full(math.prod(env.obs_shape), most if are_all else 0.0)
    key = "" if are_all else "pixels"  # beside floats, numbers that are no pixels are floats too
    parts = (part for part in env.obs_parts if not key or part.get(key))
    for span, part in zip(env.spans_of(key), parts, strict=False):
        largest[span] = 1.0 if "sizes" in part else part.get("max") or most
    return largest


class ObservationRows:
    """Turns observations into rows for the networks.

    Args:
        env: has the observations' shape and dtype.
        normalize: whether published statistics normalise them; otherwise uint8 is divided by the largest
            number that its space declares, each part of a Dict by its own, to 0..1: a dark background is 0,
            so that only what is lit moves a weight.
        device: of the observations.
        stack: number of images that the networks take at once.
    """

    def __init__(self, env: EnvironmentSpec, normalize: bool, device: torch.device, stack: int = 1):
        self.shape, self._stack = tuple(env.obs_shape), stack
        self.size = stack * math.prod(env.obs_shape)
        self._pixels = env.obs_dtype == "uint8"
        self.learned = normalize
        self.normalized = normalize or self._pixels
        largest = largest_bytes(env) if self._pixels else np.ones(math.prod(env.obs_shape))
        mean, std = np.zeros(self.size, np.float32), np.tile(largest.astype(np.float32), stack)
        self._mean, self._std = (torch.tensor(array, device=device) for array in (mean, std))
        self._arrays = {"observation_mean": mean, "observation_std": std}  # the same, on the host
        self._centred = normalize

    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        """``[B, *obs_shape]``, or stacks, to float32 ``[B, size]``; may share memory with ``obs``."""
        rows = obs if obs.dim() == 2 else obs.reshape(obs.shape[0], self.size)
        if not self.normalized:
            return rows
        if self._pixels:
            limit = CLIP if self.learned else math.inf
            return scaled_bytes(rows, self._mean, self._std, limit, centred=self._centred)
        return rows.sub(self._mean).div_(self._std).clamp_(-CLIP, CLIP)

    def adopt(self, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        """Use the statistics of a policy message from now on, if statistics are learned.

        Raises:
            WireError: ``bad_parameters``, if one is missing or has another size.
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
        """The arrays for a policy message; none if observations are not normalised."""
        if not self.normalized:
            return {}
        return {name: array.copy() for name, array in self._arrays.items()}

    def description(self) -> dict[str, Any]:
        """The ``observation`` of a policy's description."""
        limit = CLIP if self.learned else float(BYTE_MAX)  # which no byte is beyond
        about = {"shape": list(self.shape), "normalize": self.normalized, "clip": limit}
        if self._pixels and has_channels_last(self.shape):
            about["channels_last"] = True
        return about if self._stack == 1 else {**about, "stack": self._stack}

    def state_dict(self) -> dict[str, Any]:
        """Copies of the mean and standard deviation in use."""
        return {"mean": self._mean.clone(), "std": self._std.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Normalise as the state did, whatever the constants for pixels are today."""
        for name, target in (("mean", self._mean), ("std", self._std)):
            target.copy_(state[name])
            self._arrays[f"observation_{name}"] = np.array(target.cpu().numpy())
        self._centred = self.learned or bool(self._arrays["observation_mean"].any())
