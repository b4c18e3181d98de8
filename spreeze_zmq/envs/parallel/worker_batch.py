"""A batch whose environments run in worker processes; ``recv`` returns the first that finish."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, StateNotKept
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.engines import engine_of
from spreeze_zmq.envs.forms import form_of
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step, stacked
from spreeze_zmq.envs.parallel.dispatcher import Dispatcher
from spreeze_zmq.envs.parallel.pool import Slots, WorkerPool, arrays_for, check_options, divide
from spreeze_zmq.envs.seeds import seeds_of


class WorkerBatch(BatchedEnv):
    """``num_envs`` environments in ``num_workers`` processes.

    A unit is a group of environments that a worker steps at once: the worker's whole share if ``recv`` waits
    for all environments; otherwise single environments, or equal groups where a native task steps several as
    fast as one. The environments' own infos are not returned, except the scalars of the last steps of
    episodes with ``step_info="final"``.

    A worker that dies, or in which one environment takes longer than ``step_timeout_s``, is restarted. The
    episodes of its environments are truncated at the last observation that was returned.

    Args:
        like: one such environment in this process, which gives spaces, limit and backend.
        num_envs: number of environments.
        num_workers: number of processes, at most ``num_envs``.
        batch_size: number of environments that ``recv`` waits for.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        settings: plain data, see ``WorkerForkServer``; seed, units and form are added here.
        step_timeout_s: seconds after which one environment's step, or reset, counts as hanging; ``None`` for
            never.
        on_tick: called a few times a second while the batch waits for workers.
        start_timeout_s: seconds within which a worker makes its environments.

    Raises:
        InvalidEnvironment: the spaces do not fit into shared memory.
        EnvironmentFailure: the workers did not start.
    """

    def __init__(
        self,
        like: BatchedEnv,
        num_envs: int,
        num_workers: int,
        batch_size: int,
        seed: int,
        settings: dict[str, Any],
        step_timeout_s: float | None,
        on_tick: Callable[[], None] = lambda: None,
        start_timeout_s: float = 60.0,
    ):
        spaces = like.single_observation_space, like.single_action_space
        super().__init__(like.env_id, num_envs, *spaces, like.max_episode_steps, seed, like.episode_limit)
        self.spec, self.render_mode, self.backend = like.spec, None, like.backend
        self.metadata = {**like.metadata, "render_modes": []}
        self.own_spaces = like.own_spaces
        self.batch_size, self.num_workers = batch_size, num_workers
        units = divide(num_envs, num_workers, batch_size, single=engine_of(like.backend).one_by_one)
        self.masks = like.masks
        row = spaces[0] if self.masks is None else self.masks.space(spaces[0].dtype)
        self.slots = slots = Slots(arrays_for(self.env_id, num_envs, num_workers, row, spaces[1]))
        self._returned = np.zeros_like(slots.obs)  # the last observation returned of each environment
        self.pool = WorkerPool(
            slots, {**settings, "seed": seed, "units": units, "form": form_of(*self.own_spaces)}
        )
        start_timeout_s = max(start_timeout_s, step_timeout_s or math.inf)
        self._steps = Dispatcher(self, self.pool, units, self._length, on_tick, start_timeout_s)
        self._rows, self._unit_of = self._steps.rows, self._steps.unit_of
        self._all_units = list(range(len(self._rows)))
        try:
            self._steps.collect(len(self._rows))  # each worker reports its units when it has made them
        except BaseException:
            self.pool.close()
            raise
        self._steps.timeout_s = math.inf if step_timeout_s is None else step_timeout_s

    def reset(self, *, seed: int | Seeds | None = None, options: Options = None) -> Begun:
        """Wait for steps under way, drop their results and begin new episodes; the info is empty.

        The arguments and errors are those of ``BatchedEnv.reset``; options must be plain data.
        """
        self._steps.collect(int(self._steps.busy.sum()))
        options = dict(options) if options else {}
        mask = options.pop("reset_mask", None)
        check_options(options)
        slots, seeds = self.slots, seeds_of(self.env_id, self.num_envs, seed)
        slots.chosen[:] = True if mask is None else mask
        slots.seed[:] = [-1 if seed is None else seed for seed in seeds]
        chosen = slots.chosen.nonzero()[0]
        units = np.unique(self._unit_of[chosen]).tolist()
        tolerance = nullcontext() if self._started else self.failures.none_tolerated()
        self._started = True
        for worker, own in self._steps.begin(units).items():
            self.pool.reset(worker, own, options)
        with tolerance:
            self._steps.collect(len(units))
            self._steps.read_messages()
        slots.failed[chosen] = False  # a worker that died has truncated episodes that had not begun
        self._length[chosen], self._return[chosen] = 0, 0.0
        obs = np.zeros_like(slots.obs)
        obs[chosen] = self._returned[chosen] = slots.obs[chosen]
        info: dict[str, Any] = {}
        return self._parted(obs, info), info

    def step(self, actions: NDArray[Any]) -> Step:
        """Step every environment and wait for all of them; as ``BatchedEnv.step``.

        Raises:
            RuntimeError: environments are under way.
        """
        if np.count_nonzero(self._steps.busy):
            raise RuntimeError(f"{self.env_id}: step() while environments are under way: recv() them first")
        self.send(actions)
        self._steps.collect(len(self._rows))
        return self._gather(self._all_rows)

    def send(self, actions: NDArray[Any], env_id: NDArray[np.integer[Any]] | None = None) -> None:
        """Start a step of some environments.

        Args:
            actions: ``[B, *action]``.
            env_id: ``[B]``: the numbers of their environments, such as ``info["env_id"]`` of ``recv``; by
                default all.

        Raises:
            RuntimeError: some of the environments are under way.
            ValueError: the actions have another shape, or the environments are only a part of a unit.
        """
        if not self._started:
            raise EnvironmentFailure(f"{self.env_id}: call reset() before send()")
        ids = self._all_rows if env_id is None else np.asarray(env_id, np.intp)
        units = self._all_units if env_id is None else list(dict.fromkeys(self._unit_of[ids].tolist()))
        actions = self._for_step(actions, len(ids))
        if env_id is not None and sum(len(self._rows[unit]) for unit in units) != len(ids):
            raise ValueError(
                f"{self.env_id}: environments {self._rows[units[0]].tolist()} step together:"
                " send() takes each of them once, and their actions at once"
            )
        if np.count_nonzero(self._steps.busy[units]):
            raise RuntimeError(
                f"{self.env_id}: send() for environments that are under way: recv() them first"
            )
        self.slots.action[ids] = actions
        for worker, own in self._steps.begin(units).items():
            self.pool.step(worker, own)

    def recv(self) -> Step:
        """The first ``batch_size`` environments to finish; ``info["env_id"]`` ``[B]`` has their numbers."""
        count = self.batch_size // len(self._rows[0]) if self.batch_size < self.num_envs else len(self._rows)
        under_way = int(np.count_nonzero(self._steps.busy))
        if under_way < count:
            raise RuntimeError(
                f"{self.env_id}: recv() of {self.batch_size} environments, but only"
                f" {under_way * len(self._rows[0])} are under way"
            )
        units = self._steps.collect(count)
        single = len(self._rows) == self.num_envs
        ids = np.array(units) if single else np.concatenate([self._rows[unit] for unit in units])
        result = self._gather(ids)
        result[4]["env_id"] = ids
        return result

    @property
    def action_mask(self) -> NDArray[np.bool_] | None:
        """See the base; of the observations that were returned last."""
        return self.masks.parted(self._returned)[1] if self.masks is not None and self._started else None

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        if hasattr(self, "pool"):
            self.pool.close()

    def _keep(self) -> Any:
        where = "components.sampler.workers = 0, in a script num_workers = 0,"
        raise StateNotKept(f"they are in worker processes ({where} keeps them)")

    def _gather(self, ids: NDArray[np.intp]) -> Step:
        """Copy the results of the environments ``ids`` ``[B]`` from shared memory, in that order."""
        slots = self.slots
        self._num_steps += 1
        obs, reward = slots.obs[ids], slots.reward[ids]
        terminated, truncated = slots.terminated[ids], slots.truncated[ids]
        self._length[ids] += 1
        self._return[ids] += reward
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if np.count_nonzero(ended):
            final_obs = obs.copy()
            final_obs[ended] = slots.final_obs[ids[ended]]
            failed = slots.failed[ids] & ended
            if np.count_nonzero(failed):
                final_obs[failed] = self._returned[ids[failed]]
                self._length[ids[failed]] -= 1
                slots.failed[ids[failed]] = False
                info["failed"] = failed
            info |= self._end_episodes(ids, ended, final_obs)
        self._returned[ids] = obs
        self._steps.read_messages()
        if last := self._steps.final_infos:
            rows = enumerate(ids.tolist())
            infos = {k: last.pop(row) for k, row in rows if ended[k] and row in last}
            if infos:
                info["final_info"], info["_final_info"] = stacked(infos, len(ids)), ended
        return self._parted(obs, info), reward, terminated, truncated, info
