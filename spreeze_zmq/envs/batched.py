"""The base of all batches: seeds, time limits, same-step autoreset, final observations, failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from spreeze_zmq.envs.door import Given
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step, overlay, select, without_reserved
from spreeze_zmq.envs.kept import KeptRows
from spreeze_zmq.envs.masks import Behind
from spreeze_zmq.envs.seeds import seeds_of
from spreeze_zmq.envs.settings import called

if TYPE_CHECKING:
    from spreeze_zmq.envs.task import Task


class BatchedEnv(KeptRows):
    """``num_envs`` environments that step together, as a ``gymnasium.vector.VectorEnv``.

    An environment whose episode ends in a step is reset within the same step. The returned observation is the
    first of the next episode, and the info describes the episode that ended:

    - ``final_obs`` ``[N, *obs]`` and its mask ``_final_obs`` ``[N]`` bool: the true last observation;
    - ``episode`` ``{"r": [N] float64, "l": [N] int64}`` and ``_episode``: the return and length in steps;
    - ``final_info`` and ``_final_info``: the info of the last step, as arrays with their masks;
    - ``failed`` ``[N]`` bool: the environments that failed in this step; absent if none did.

    Where action masks are read, the info of every reset and step has ``action_mask`` ``[N, A]`` bool of the
    returned observations, and where episodes ended ``final_action_mask`` of the final ones.

    Environments get their own copies of actions, within the bounds of their space. One that raises, or that
    returns what its spaces do not promise (see ``door``), does not stop the others. Its step does not count:
    the episode is truncated at the last good observation with a reward of 0, the environment is reset, and
    ``failures`` logs the failure and raises when there are too many. Returned arrays are never written again.
    Subclasses implement the step (``_advance``) and the reset (``_restart``, see ``FailingRows``).

    Attributes:
        batch_size: number of environments that ``recv`` waits for.
        backend: the engine, ``mujoco``, ``numpy``, ``envpool`` or ``gymnasium``.
        backend_reason: why this engine was chosen.
        max_episode_steps: steps after which this batch truncates an episode; ``None`` for never.
        own_spaces: of observations and actions of one environment itself, before its engine adapts them.
        episode_limit: the lowest of this and the limits that wrappers within the environments apply.
        envs: the environments that are objects of this process; empty for other engines.
        task: the native task that is stepped, if one is.
        close_fault: what was raised in ``close()``, in one line; empty for nothing.
        masks: how action masks stand behind the observations inside this batch; None where none are read.
        whole_rows: whether ``step`` and ``reset`` return such rows as they are.
        on_tick: called a few times a second while the batch waits for worker processes; without workers,
            after each environment that is made, reset or stepped in Python.
        before_reset: called in a step where episodes have ended and not failed, while their environments are
            still where they ended; by no worker process.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012
    backend_reason = ""
    close_fault = ""
    masks: Behind | None = None
    whole_rows = False
    envs: Sequence[gymnasium.Env[Any, Any]] = ()
    task: Task | None = None

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        observation_space: Space[Any],
        action_space: Space[Any],
        max_episode_steps: int | None,
        seed: int,
        episode_limit: int | None = None,
    ):
        super().__init__(env_id, num_envs, seed)
        self.batch_size = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.own_spaces = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.action_space.seed(seed)
        self.max_episode_steps = max_episode_steps
        self.episode_limit = max_episode_steps if episode_limit is None else episode_limit
        self._given = Given(action_space)
        self._limit = np.iinfo(np.int64).max if max_episode_steps is None else max_episode_steps
        self._all_rows = np.arange(num_envs)
        self._stepped: Step | None = None
        self._stepping: NDArray[np.intp] | None = None
        self.on_tick: Callable[[], None] = lambda: None
        self.before_reset: Callable[[], None] = lambda: None

    def cut_after(self, steps: int) -> None:
        """Truncate episodes after ``steps``, unless the environment's own limit is lower."""
        self._limit = min(self._limit, steps)
        self.max_episode_steps = self._limit
        self.episode_limit = min(self.episode_limit or steps, steps)

    # Implemented by subclasses.

    def _advance(self, actions: NDArray[Any]) -> Step:
        """Step all environments without a reset; the arrays are fresh, except ``truncated``."""
        raise NotImplementedError

    def gives_masks(self, info: Any) -> bool:
        """Whether its environments give action masks, by the ``info`` of a reset."""
        return False

    def read_masks(self) -> None:
        """Read action masks from the next reset on."""
        raise NotImplementedError

    # The interface of gymnasium.vector.

    def reset(self, *, seed: int | Seeds | None = None, options: Options = None) -> Begun:
        """Begin new episodes.

        Args:
            seed: environment ``i`` is seeded with ``seed + i``, or with ``seed[i]``. Without one, the first
                reset takes the seed given to ``make``; later ones continue the random states.
            options: passed to each environment; ``reset_mask`` (``[N]`` bool) restricts the reset.

        Returns:
            Observations ``[N, *obs]``, zeros outside ``reset_mask``, and the info.

        Raises:
            EnvironmentFailure: an environment failed in the first reset, or more of them in a later one than
                ``failures`` tolerates.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        rows = self._all_rows if mask is None else np.flatnonzero(mask)
        first_seed = self._seed if seed is None and not self._started else seed
        seeds = seeds_of(self.env_id, self.num_envs, first_seed)
        is_first, self._started = not self._started, True
        tolerance = self.failures.none_tolerated() if is_first else nullcontext()
        self._stepped = self._stepping = None
        self._length[rows] = 0
        self._return[rows] = 0.0
        with tolerance:
            first, info = self._begin(rows, [seeds[i] for i in rows.tolist()], options or None)
        obs = np.zeros((self.num_envs, *first.shape[1:]), first.dtype)
        obs[rows] = first
        self._last_obs = obs if self._last_obs is None else self._last_obs.copy()
        self._last_obs[rows] = first
        info = without_reserved(info)
        return (obs if self.masks is None else self._parted(obs, info)), info

    def step_only(self, rows: NDArray[np.bool_]) -> None:
        """Skip the environments outside ``rows`` ``[N]`` in all steps until the next reset.

        Their results are undefined. MuJoCo's and Gymnasium's engines skip them, others step them anyway.
        """
        self._stepping = rows.nonzero()[0]

    def step(self, actions: NDArray[Any]) -> Step:
        """Step every environment, and reset each one whose episode ends.

        Args:
            actions: ``[N, *action]`` in the environment's own units; clipped to the bounds of a Box.

        Returns:
            Observations ``[N, *obs]``, rewards ``[N]`` float64, terminated and truncated ``[N]`` bool, info.

        Raises:
            EnvironmentFailure: environments failed more often than ``failures`` tolerates.
            ValueError: the actions have another shape, or are floats where integers are taken.
        """
        by: Callable[..., Step] = self._first_step() if self._is_new else called
        actions = self._for_step(actions, self.num_envs)
        self._num_steps += 1
        self._length += 1
        obs, reward, terminated, truncated, info = by(self._advance, actions)
        truncated = truncated | (self._length >= self._limit)
        failed = self._find_failed(obs, reward)
        if failed is not None:
            assert self._last_obs is not None
            obs[failed], reward[failed] = self._last_obs[failed], 0.0
            terminated[failed], truncated[failed] = False, True
            self._length[failed] -= 1
        self._return += reward
        ended = terminated | truncated
        if np.count_nonzero(ended):
            obs, info = self._autoreset(obs, info, ended)
        elif info:
            info = without_reserved(info)
        if failed is not None:
            info["failed"] = failed
        self._last_obs = obs
        if self.masks is not None:
            obs = self._parted(obs, info)
        return obs, reward, terminated, truncated, info

    @property
    def action_mask(self) -> NDArray[np.bool_] | None:
        """``[N, A]``: the actions that are legal in the next step; None where no masks are read."""
        return None if self.masks is None or self._last_obs is None else self.masks.parted(self._last_obs)[1]

    def random_actions(self) -> NDArray[Any]:
        """Uniform actions ``[N, *action]`` for the next step, legal ones where masks are read."""
        if self.masks is None or (legal := self.action_mask) is None:
            drawn: NDArray[Any] = self.action_space.sample()
            return drawn
        return self.masks.drawn(legal, self.action_space.np_random)

    def send(self, actions: NDArray[Any], env_id: NDArray[np.integer[Any]] | None = None) -> None:
        """Start a step, whose result ``recv`` returns.

        Args:
            actions: ``[N, *action]``.
            env_id: ``[N]``: the number of the environment of each action, all of them in any order.
        """
        if self._stepped is not None:
            raise RuntimeError(f"{self.env_id}: send() twice without recv()")
        actions = np.asarray(actions)
        if env_id is not None:
            ids = np.asarray(env_id)
            if not np.array_equal(np.sort(ids), self._all_rows):
                raise ValueError(f"{self.env_id}: actions for all {self.num_envs} environments expected")
            actions = actions[np.argsort(ids)]
        self._stepped = self.step(actions)

    def recv(self) -> Step:
        """The result of the last ``send``, as of ``step``; ``info["env_id"]`` ``[N]`` numbers the rows."""
        if self._stepped is None:
            raise RuntimeError(f"{self.env_id}: recv() without send()")
        result, self._stepped = self._stepped, None
        result[4]["env_id"] = np.arange(self.num_envs)
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env_id}, num_envs={self.num_envs}, backend={self.backend})"

    # Shared with subclasses.

    def _for_step(self, actions: NDArray[Any], num: int) -> NDArray[Any]:
        """A copy of ``actions`` for ``num`` environments, within their bounds; raises as ``Given`` does."""
        try:
            return self._given(actions, num)
        except ValueError as error:
            raise ValueError(f"{self.env_id}: {error}") from None

    def _parted(self, obs: NDArray[Any], info: dict[str, Any]) -> NDArray[Any]:
        """The observations of rows that have masks behind them; the masks go into ``info``."""
        if self.masks is None or self.whole_rows:
            return obs
        obs, info["action_mask"] = self.masks.parted(obs)
        if "final_obs" in info:
            info["final_obs"], info["final_action_mask"] = self.masks.parted(info["final_obs"])
        return obs

    def _end_episodes(
        self, ids: NDArray[np.intp], ended: NDArray[np.bool_], final_obs: NDArray[Any]
    ) -> dict[str, Any]:
        """Build the info of the episodes that ended in a step, and reset their returns and lengths.

        Args:
            ids: ``[B]``: the environments that stepped.
            ended: ``[B]``: at least one is True.
            final_obs: ``[B, *obs]``: the observations after the step, before any reset.
        """
        over = ids[ended]
        self.failures.episodes += len(over)
        returns, lengths = np.where(ended, self._return[ids], 0.0), np.where(ended, self._length[ids], 0)
        self._return[over], self._length[over] = 0.0, 0
        episode = {"r": returns, "l": lengths}
        return {"final_obs": final_obs, "_final_obs": ended, "episode": episode, "_episode": ended}

    def _autoreset(
        self, final_obs: NDArray[Any], step_info: dict[str, Any], ended: NDArray[np.bool_]
    ) -> Begun:
        """Reset the environments of ``ended`` ``[N]`` after a step with info ``step_info``; returns the next
        observations ``[N, *obs]`` and the step's whole info.
        """
        info = self._end_episodes(self._all_rows, ended, final_obs)
        rows = ended.nonzero()[0]
        if len(self._failed) < len(rows):
            self.before_reset()
        seeds: list[int | None] = [None] * len(rows)
        if self._failed:
            seeds = [self._repair(row) if row in self._failed else None for row in rows.tolist()]
            self._failed.clear()
        first, reset_info = self._begin(rows, seeds, None)
        obs = final_obs.copy()
        obs[rows] = first
        info["final_info"], info["_final_info"] = select(step_info, ended), ended
        return obs, {**without_reserved(overlay(step_info, reset_info, ended)), **info}
