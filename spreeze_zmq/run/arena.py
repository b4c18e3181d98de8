"""The environments in which policies are evaluated: as many as pay, in workers where a step is slow."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq import envs
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.failures import Failure
from spreeze_zmq.errors import InvalidEnvironment

log = logging.getLogger("spreeze")

#: The steps after which evaluation cuts episodes of an environment that has no time limit.
ENDLESS_STEPS = 1000
#: An environment whose step takes longer is played in workers: five in turn would take a second for 20 steps.
SLOW_STEP_S = 0.01
SLOW_RESET_S = 1.0
#: Steps that are timed.
TIMED_STEPS = 3
#: A step that computes for less of its time than this waits for something: it needs no core of its own.
COMPUTES = 0.2


class Arena:
    """Environments for whole episodes.

    Args:
        spec: of the run's environment.
        width: episodes played at once.
        max_episode_steps: cuts episodes; by default the environment's own limit, ``ENDLESS_STEPS`` where it
            has none.
        num_workers: processes; None to decide by the time of a step.
        options: further arguments of ``envs.make``.
        on_tick: that of ``envs.make``.

    Attributes:
        spec: with ``max_episode_steps`` among its kwargs where the evaluation sets it.
        step_cap: the limit that the evaluation sets; None where the environment has its own.
        num_workers: processes that step the environments; 0 for none.

    Raises:
        InvalidEnvironment: it cannot be made.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        width: int,
        *,
        max_episode_steps: int | None = None,
        num_workers: int | None = None,
        options: Mapping[str, Any] | None = None,
        on_failure: Callable[[Failure], None] | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.step_cap = step_cap(spec, max_episode_steps)
        self.spec = limited(spec, self.step_cap)
        self.width = width
        calls = {"on_failure": on_failure, "on_tick": on_tick}
        self._options = {**(options or {}), "step_info": "final", **calls}
        one = self._made(1, 0)
        self.native = one.backend in ("mujoco", "numpy")
        self.num_workers = 0 if self.native or one.backend == "envpool" else num_workers
        if self.num_workers is None:
            self.num_workers = workers_for(one, width)
        self._batches = {1: one} if self.native or (width == 1 and not self.num_workers) else {}
        if not self._batches:
            one.close()
            self._batches = {width: self._made(width, min(self.num_workers, width))}
        if self.step_cap is not None:
            log.info("evaluation cuts episodes after %d steps", self.step_cap)
        if self.num_workers:
            log.info("evaluation plays in %d workers", self.num_workers)

    def batch(self, num_episodes: int) -> Any:
        """The environments for a number of episodes: as many, where a native task makes them in no time. More
        than ``width``, which a decision waits for, are stepped on all cores.
        """
        size = num_episodes if self.native else self.width
        if size not in self._batches:
            threads = 0 if size <= self.width else min(size, len(os.sched_getaffinity(0)))
            self._batches[size] = self._made(size, threads)
        return self._batches[size]

    def close(self) -> None:
        """End their processes."""
        for batch in self._batches.values():
            batch.close()

    def _made(self, num_envs: int, num_workers: int) -> Any:
        made = (self.spec.id, num_envs)
        options = {**self._options, **self.spec.kwargs}
        try:
            return envs.make(*made, num_workers=num_workers, **options)
        except InvalidEnvironment:
            if not num_workers:
                raise
            self.num_workers = 0  # its arguments cannot be sent to other processes
            return envs.make(*made, **options)


def step_cap(spec: EnvironmentSpec, max_episode_steps: int | None) -> int | None:
    """The limit that evaluation sets for episodes; None where the environment's own is as low."""
    own = spec.max_episode_steps
    wanted = max_episode_steps or own or ENDLESS_STEPS
    return wanted if own is None or wanted < own else None


def limited(spec: EnvironmentSpec, cap: int | None) -> EnvironmentSpec:
    """``spec`` with a time limit."""
    if cap is None:
        return spec
    return replace(spec, kwargs={**spec.kwargs, "max_episode_steps": cap}, max_episode_steps=cap)


def workers_for(
    one: Any, width: int, slow_step_s: float = SLOW_STEP_S, slow_reset_s: float = SLOW_RESET_S
) -> int:
    """The processes that ``width`` environments like ``one``, which is reset and stepped, need: none where a
    step takes no time; as many as there are cores where it computes, else one for each.
    """
    began_s, cpu_s = time.monotonic(), time.process_time()
    one.reset(seed=0)
    reset_s = time.monotonic() - began_s
    steps = 0
    while steps < TIMED_STEPS and time.monotonic() - began_s - reset_s < 1.0:
        one.step(one.action_space.sample())
        steps += 1
    wall_s = time.monotonic() - began_s
    if (wall_s - reset_s) / steps < slow_step_s and reset_s < slow_reset_s:
        return 0
    computes = (time.process_time() - cpu_s) / wall_s >= COMPUTES
    return min(width, len(os.sched_getaffinity(0))) if computes else width
