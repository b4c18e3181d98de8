"""What is odd about an environment without keeping anybody from stepping it, as plain data for a plan.

The rules of ``spreeze_zmq.broker.doctor`` say what it means for the learning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure
from spreeze_zmq.base.usage import served_s
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.bounds import Bounds
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.infos import MAX_SCALARS, without_reserved

#: Steps of random actions that are looked at, and the longest time for them; and those without a time limit,
#: to see whether an episode ends: half more than the longest usual limit.
STEPS, STEPS_S = 20, 0.02
UNLIMITED_STEPS, UNLIMITED_S = 1_500, 2.0
#: Resets without a seed that are looked at, where one begins as the one with a seed: of an environment that
#: begins in one of two ways so many are alike by chance once in a thousand times.
#: They take ``STICKS_S`` at most; slower ones are not looked at.
RESETS, STICKS_S = 10, 1.0
#: Digits of a number are lost where rounding it to float32 moves it by this share of its deviation. One that
#: varies by less than ``NOISE`` of its size is a constant with float64's own rounding, by less than
#: ``JITTER`` one with that of a solver.
LOST, NOISE, JITTER = 0.1, 1e-12, 1e-6
#: Wrappers whose running statistics change what a seed gives.
_CHANGING = {"NormalizeObservation"}


def facts_of(
    batch: BatchedEnv, note: Callable[[str], None] = lambda line: None, *, resets: bool = True
) -> dict[str, Any]:
    """Reset a batch of one environment twice with one seed, and take some random steps.

    Args:
        batch: of one environment, which has been reset.
        note: called with a line for what was not looked at, as one of these calls failed or they take long.
        resets: whether to reset it; else nothing is looked for that takes resets.

    Returns:
        ``wrappers``, the names of Gymnasium's around it; ``info``, the names of its info's entries;
        ``same_seed_differs``; ``seed_sticks``, if resets without a seed repeat the last one with a seed;
        ``outside``, the first number beyond the bounds of its space, in words; ``lost_digits``, a number
        whose digits float32 does not keep, in words; ``largest_byte``, of observations of uint8;
        ``unended_steps``, without a time limit, if no episode has ended. What is not the case is left out.
    """
    wrappers, walk = list(_wrappers(batch)), _Walk(batch)
    found: dict[str, Any] = {"wrappers": wrappers}
    try:
        first = walk.begin() if resets else None
        walk.go(STEPS, STEPS_S)
        if not batch.episode_limit and not walk.ended:
            began_s = time.monotonic()
            walk.go(STEPS, 5 * STEPS_S)
            if time.monotonic() - began_s < 5 * STEPS_S:  # slower ones would take too long
                walk.go(UNLIMITED_STEPS - walk.num_steps, UNLIMITED_S)
        if first is not None and engine_of(batch.backend).one_by_one and not _CHANGING & set(wrappers):
            found["same_seed_differs"] = not np.array_equal(first, batch.reset(seed=0)[0])
            found["seed_sticks"] = _sticks(batch, first, note)
    except EnvironmentFailure as error:
        note(failed_later(error))
    seen = np.concatenate(walk.first or [np.zeros((1, 0))])
    names = sorted(name for name in walk.names if name[:1] != "_")
    if len(names) > MAX_SCALARS:
        note(f"its info has {len(names)} names: evaluations average the first {MAX_SCALARS} numbers of it")
    found |= {
        "info": names[:MAX_SCALARS],
        "outside": walk.outside,
        "lost_digits": lost_digits(seen),
        "largest_byte": int(seen.max()) if seen.dtype == np.uint8 else 0,
        "unended_steps": 0 if walk.ended or walk.num_steps < UNLIMITED_STEPS else walk.num_steps,
    }
    return {name: value for name, value in found.items() if value}


def failed_later(error: EnvironmentFailure) -> str:
    """That a call failed which came after the first ones, in one line: a run tolerates some of them."""
    return f"a later call failed: {(str(error).splitlines() or [type(error).__name__])[0]}"


def _sticks(batch: BatchedEnv, first: NDArray[Any], note: Callable[[str], None]) -> bool:
    """Whether resets without a seed begin all as ``first``, that with seed 0, and others do not. False too
    where all would take longer than ``STICKS_S``, which is noted. Raises EnvironmentFailure.
    """
    until_s, is_late = served_s() + STICKS_S, False

    def is_first(seed: int | None = None) -> bool:
        nonlocal is_late
        is_late = is_late or served_s() >= until_s
        return not is_late and np.array_equal(batch.reset(seed=seed)[0], first)

    sticks = is_first() and not all(is_first(seed) for seed in (1, 2, 3))
    sticks = sticks and is_first(0) and all(is_first() for _ in range(RESETS))
    if is_late:
        note("resets take too long to see whether those without a seed repeat the last one with a seed")
    return sticks


class _Walk:
    """What random actions show, from a reset on or from where the episode is."""

    def __init__(self, batch: BatchedEnv) -> None:
        self.batch, self.num_steps, self.ended = batch, 0, False
        self.names: set[str] = set()
        self.outside, self._bounds = "", Bounds(batch.single_observation_space)
        self.first: list[NDArray[Any]] = []  # observations, up to STEPS and that of the reset

    def begin(self) -> NDArray[Any]:
        """Reset it with seed 0; returns the observation ``[1, *obs]``."""
        obs, info = self.batch.reset(seed=0)
        self._see(obs, info)
        return self.first[0]

    def go(self, most: int, seconds: float) -> None:
        """Take some steps, at most until an episode ends."""
        until_s = time.monotonic() + seconds
        for _ in range(most):
            obs, _, terminated, truncated, info = self.batch.step(self.batch.random_actions())
            self.num_steps += 1
            self._see(obs, info)
            self.ended = bool(terminated[0] or truncated[0])
            if self.ended or time.monotonic() >= until_s:
                return

    def _see(self, obs: NDArray[Any], info: dict[str, Any]) -> None:
        self.names |= {name for name in without_reserved(info) if isinstance(name, str)}
        if len(self.first) <= STEPS:
            self.first.append(obs.copy())
        if not self.outside and (found := self._bounds.first_beyond(obs)):
            self.outside = str(found)


def lost_digits(obs: NDArray[Any]) -> str:
    """The number of observations ``[N, *obs_shape]`` that loses most of what it says when it is rounded to
    float32, as samplers send it, in words; empty where none does.
    """
    if np.can_cast(obs.dtype, np.float32):
        return ""
    rows = obs.reshape(len(obs), -1).astype(np.float64)
    rounding = np.sqrt(np.square(rows - rows.astype(np.float32)).mean(0))
    size, deviation = np.abs(rows).max(0), rows.std(0)
    varies = (deviation > NOISE * size) & (deviation >= JITTER)
    lost = (rounding > LOST * deviation) & varies
    if not lost.any():
        return ""
    place = int(np.argmax(np.divide(rounding, deviation, out=np.zeros_like(size), where=lost)))
    step = np.spacing(np.float32(size[place]))
    seen = (
        f"number {place} of an observation is around {size[place]:.2g} and varies by {deviation[place]:.2g}"
    )
    return f"{seen}; float32, as which it is sent, has steps of {step:.2g} there"


def _wrappers(batch: BatchedEnv) -> Iterator[str]:
    """Gymnasium's own wrappers around the environment, the outermost first."""
    for env in batch.envs[:1]:
        while hasattr(env, "env"):
            if type(env).__module__.startswith("gymnasium.wrappers"):
                yield type(env).__name__
            env = env.env
