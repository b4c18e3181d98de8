"""Environments whose steps take unevenly long, for ``environments.py``: they wait, or they compute."""

from __future__ import annotations

import math
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

#: The duration of a step is log-normal, clipped to these bounds, two standard deviations from the median.
LOW_MS, HIGH_MS = 1.0, 20.0
MEDIAN_MS, SIGMA = math.sqrt(LOW_MS * HIGH_MS), math.log(HIGH_MS / LOW_MS) / 4


def step_s(rng: np.random.Generator, size: int | None = None) -> NDArray[np.float64]:
    """The duration of one step, or of ``size`` of them, in seconds."""
    drawn_ms = np.exp(rng.normal(np.log(MEDIAN_MS), SIGMA, size))
    return np.clip(drawn_ms, LOW_MS, HIGH_MS) / 1000


def mean_step_s() -> float:
    """The mean duration of a step."""
    return float(step_s(np.random.default_rng(0), 1_000_000).mean())


class Waiting(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Each step waits without computing; episodes never end."""

    observation_space = Box(-1.0, 1.0, (8,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed)
        self.obs = np.zeros(8, np.float32)
        return self.obs, {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Spend a random duration."""
        self.spend(float(step_s(self.np_random)))
        return self.obs, 0.0, False, False, {}

    def spend(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class Computing(Waiting):
    """Each step takes its duration in CPU time, however many other environments compute at once."""

    def spend(self, seconds: float) -> None:
        """Use a core."""
        until_s = time.thread_time() + seconds
        while time.thread_time() < until_s:
            pass
