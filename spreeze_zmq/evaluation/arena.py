"""The environments in which policies are evaluated, stepped by worker processes if a step is slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spreeze_zmq import envs
from spreeze_zmq.base.errors import InvalidEnvironment
from spreeze_zmq.base.machine import available_cores
from spreeze_zmq.envs import EnvironmentSpec, Timing
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.failures import EnvironmentFault
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

log = logging.getLogger("spreeze")

#: Time limit of episodes, in steps, for an environment that has none.
ENDLESS_STEPS = 1000
#: An environment with a slower step is stepped by workers: five in turn would take a second for 20 steps.
SLOW_STEP_S = 0.01
SLOW_RESET_S = 1.0
#: A sampler's environments get workers if one step or reset of all of them, in turn, takes longer than this.
SLOW_TOGETHER_S = 5.0
#: Environments that would take longer to make in turn are made in workers, at once.
SLOW_TO_MAKE_S = 60.0
#: A step that computes for a smaller share of its time mostly waits: it needs no core of its own.
COMPUTES = 0.2
#: Environments whose steps wait this long, as for another program, do so together in workers.
WAITS_S = 0.005


class Arena:
    """Environments for whole episodes.

    Args:
        spec: the run's environment.
        width: episodes played at once.
        timing: what one environment took; by default one is looked at.
        max_episode_steps: time limit; by default the environment's own, or ``ENDLESS_STEPS`` if it has none.
        num_workers: worker processes; None to decide by the time of a step.
        options: further arguments of ``envs.make``.
        on_failure: as in ``envs.make``.
        on_tick: as in ``envs.make``.

    Attributes:
        spec: has the ``max_episode_steps`` that the evaluation sets.
        step_cap: the time limit that the evaluation sets; None if the environment's own is as low.
        num_workers: processes that step the environments; 0 if this process does.
        randomize: ranges from which each reset draws their models; empty for the nominal one.

    Raises:
        InvalidEnvironment: the environment cannot be made.
        Unguarded: as for ``envs.look``, where ``timing`` is not given.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        width: int,
        timing: Timing | None = None,
        *,
        max_episode_steps: int | None = None,
        num_workers: int | None = None,
        options: Mapping[str, Any] | None = None,
        on_failure: Callable[[EnvironmentFault], None] | None = None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        own_limit = spec.max_episode_steps
        limit = time_limit_of(own_limit, max_episode_steps)
        self.step_cap, self.spec = None, spec
        if own_limit is None or limit < own_limit:
            self.step_cap, self.spec = limit, replace(spec, max_episode_steps=limit)
        self.width = width
        calls = {"on_failure": on_failure, "on_tick": on_tick}
        self.randomize: Mapping[str, Any] = (options or {}).get("randomize") or {}
        self._options = {**(options or {}), "step_info": "final", **calls}
        timing = timing or envs.look(spec.id, spec.kwargs).timing
        engine = engine_of(timing.backend)
        self.native = engine.native
        self.num_workers = 0 if engine.native or engine.module else num_workers
        if self.num_workers is None:
            self.num_workers = workers_for(timing, width)
        first = 1 if self.native else width
        self._batches = {first: self._make(first, min(self.num_workers, width))}
        if self.step_cap is not None:
            log.info("evaluation cuts episodes after %d steps", self.step_cap)
        if self.num_workers:
            log.info("evaluation plays in %d workers", self.num_workers)

    def batch(self, num_episodes: int) -> BatchedEnv:
        """The environments in which ``num_episodes`` episodes are played.

        A native task has one for each episode, as they cost nothing to make, and steps more than ``width`` on
        all cores. Any other environment is played in rounds of ``width``.
        """
        size = num_episodes if self.native else self.width
        if size not in self._batches:
            threads = 0 if size <= self.width else min(size, available_cores())
            self._batches[size] = self._make(size, threads)
        return self._batches[size]

    def close(self) -> None:
        """End the worker processes."""
        for batch in self._batches.values():
            batch.close()

    def _make(self, num_envs: int, num_workers: int) -> BatchedEnv:
        try:
            return envs.remade(self.spec, num_envs, num_workers=num_workers, **self._options)
        except InvalidEnvironment:
            if not num_workers:
                raise
            self.num_workers = 0  # its arguments cannot be sent to other processes
            return envs.remade(self.spec, num_envs, **self._options)


def episode_steps(plan: Plan) -> int:
    """The time limit of the episodes that a run's evaluator plays, its own or the environment's."""
    asked = plan.components[EVALUATOR].options.get("episode_steps")
    return time_limit_of(plan.environment.max_episode_steps, asked if type(asked) is int else None)


def randomized(plan: Plan) -> Mapping[str, Any]:
    """Ranges from which a run's evaluator draws models; empty for the nominal one."""
    return plan.run.randomize if plan.components[EVALUATOR].options.get("randomize") else {}


def time_limit_of(own_limit: int | None, asked: int | None) -> int:
    """The time limit of an evaluation's episodes: as asked for, but no longer than the environment's own."""
    return min(filter(None, (own_limit, asked or own_limit or ENDLESS_STEPS)))


def timing_of(plan: Plan) -> Timing:
    """What one environment of a run took before it began, or takes now if its plan does not say."""
    if plan.timing:
        return Timing.from_plain(plan.timing)
    return envs.look(plan.environment.id, plan.environment.kwargs).timing


def workers_for(
    timing: Timing,
    width: int,
    slow_step_s: float = SLOW_STEP_S,
    slow_reset_s: float = SLOW_RESET_S,
    cores: int | None = None,
) -> int:
    """The number of worker processes that ``width`` environments need, from what one of them took.

    One for each environment if a step waits ``WAITS_S`` or longer, else 0 for fast ones; for slow ones, also
    those that are slow to make, one for each of ``cores`` (by default all) if they compute, else for each
    environment.
    """
    step_s, cores = timing.step_s, cores or available_cores()
    if step_s >= WAITS_S and timing.step_computes < COMPUTES * step_s and width > 1:
        return width
    if timing.make_s > SLOW_TOGETHER_S or timing.make_s * width > SLOW_TO_MAKE_S:
        return min(width, cores) if timing.make_computes >= COMPUTES * timing.make_s else width
    if step_s < slow_step_s and timing.reset_s < slow_reset_s:
        return 0
    return min(width, cores) if timing.computes >= COMPUTES else width


def workers_of_sampler(plan: Plan, timing: Timing, index: int = 0) -> int:
    """Processes that step the environments of a sampler of this machine; "auto" is 0 unless their steps wait
    or are very slow, and in a fixed order, where nothing follows from a time. The samplers share the cores.
    """
    options, count = plan.components[SAMPLER].options, plan.components[SAMPLER].count
    wanted, num_envs = options["workers"], options["envs"]
    if wanted != "auto":
        return int(min(wanted, num_envs))
    if plan.balance.in_order or not engine_of(timing.backend).one_by_one:
        return 0
    each_s, cores = SLOW_TOGETHER_S / num_envs, available_cores()
    # a machine that has joined, whose samplers have higher numbers, runs one for each core
    samplers = count.initial if index < count.maximum else cores
    return workers_for(timing, num_envs, each_s, each_s, max(1, cores // max(1, samplers)))


def stepped_in_workers(plan: Plan) -> bool:
    """Whether worker processes step the environments of the samplers or the evaluator of a run."""
    timing, backend = timing_of(plan), plan.components[SAMPLER].options["backend"]
    timing = timing if backend == "auto" else replace(timing, backend=backend)
    engine, evaluator = engine_of(timing.backend), plan.components[EVALUATOR].options
    if engine.native:
        return False
    found = evaluator["workers"]
    if found == "auto":
        found = workers_for(timing, evaluator["episodes"]) if engine.one_by_one else 0
    return bool(found or workers_of_sampler(plan, timing))
