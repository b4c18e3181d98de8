"""Any Gymnasium environment, in a lean loop that writes into one batch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from spreeze_zmq.base.errors import (
    EnvironmentFailure,
    InvalidEnvironment,
    definition_of,
    in_one_line,
    let_interrupts_pass,
    place_of,
)
from spreeze_zmq.envs.batched import BatchedEnv
from spreeze_zmq.envs.door import REWARDS, Observed, WrongReturn, five, flag, reward_of
from spreeze_zmq.envs.engines.fitting import fitted, seed_spaces, spaces_of, time_limit, without_limit
from spreeze_zmq.envs.forms import check_alike, difference, form_of
from spreeze_zmq.envs.infos import Begun, Options, Seeds, Step, stacked
from spreeze_zmq.envs.kept import keep_env, put_envs_back
from spreeze_zmq.envs.masks import Behind, MaskReader, gives_masks
from spreeze_zmq.envs.seeds import seed_for
from spreeze_zmq.envs.settings import theirs
from spreeze_zmq.envs.unstable import UNSTABLE, listen, stop_clock

log = logging.getLogger("spreeze.envs")


class GymnasiumLoop(BatchedEnv):
    """``num_envs`` environments, stepped one after the other.

    The batch applies the time limit of each environment's outermost ``TimeLimit``, which is removed.
    ``Observed`` reads observations, and ``fitted`` adapts actions.

    Args:
        env_id: name in messages.
        make_one: makes the environment of a row.
        num_envs: number of environments.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset.
        step_info: whether to gather the environments' infos, which may cost more than the step; ``"final"``
            gathers only those of the last steps of episodes.
        on_tick: called after each environment that is made, reset or stepped.
        action_mask: whether to read which actions are legal.

    Attributes:
        at: ``[1]`` int64: the environment that is being stepped; a worker replaces it by shared memory.

    Raises:
        InvalidEnvironment: the environment cannot be made, or its observations have no fixed size.
    """

    backend = "gymnasium"
    envs: list[gymnasium.Env[Any, Any]]

    def __init__(
        self,
        env_id: str,
        make_one: Callable[[int], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        step_info: bool | Literal["final"],
        on_tick: Callable[[], None] = lambda: None,
        action_mask: bool = False,
    ):
        self._make_one, self._step_info = make_one, step_info
        unfitted = []
        for row in range(num_envs):
            unfitted.append(make_one(row))
            seed_spaces(unfitted[row], seed_for(seed + row, 1))
            on_tick()
        self.envs = [fitted(env_id, without_limit(env)) for env in unfitted]
        self._own = [without_limit(env) for env in unfitted]
        self._spaces = [spaces_of(env) for env in self._own]
        self._form = form_of(*self._spaces[0])
        for row, own in enumerate(self._spaces):
            check_alike(env_id, row, form_of(*own), self._form)
        one, limit = unfitted[0], time_limit(unfitted[0])
        self._observed = Observed(self.envs[0].observation_space)
        spaces = self._observed.space, self.envs[0].action_space
        own_limit = int(one._max_episode_steps) if type(one) is TimeLimit else None
        super().__init__(env_id, num_envs, *spaces, own_limit, seed, limit)
        self.own_spaces = self._spaces[0]
        self.on_tick = on_tick
        self.spec, self.render_mode = one.spec, one.render_mode
        self.metadata = {**(one.metadata or {}), **type(self).metadata}
        self._steps = [env.step for env in self.envs]
        self.at = np.zeros(1, np.int64)
        listen()
        stop_clock()
        self._obs_dtype = np.dtype(spaces[0].dtype)
        self._obs_shape = self._row_shape = spaces[0].shape or ()
        self._mask_of: MaskReader | None = None
        self._lay_out()
        if action_mask:
            self.read_masks()

    def _lay_out(self) -> None:
        """Make the rows of a step: observations, for vectors the same memory as numbers too, and masks."""
        num_envs, size = self.num_envs, math.prod(self._obs_shape)
        self._rows = np.zeros((num_envs, *self._row_shape), self._obs_dtype)
        self._obs = self._masks = self._rows
        if self._mask_of is not None:
            self._obs = self._rows[:, :size].reshape(num_envs, *self._obs_shape)
            self._masks = self._rows[:, size:]
        width = self._rows[0].size
        flat: Any = self._rows.reshape(-1)
        self._numbers: Any = memoryview(flat) if len(self._obs_shape) == 1 else ()
        self._spans = [slice(row * width, row * width + size) for row in range(num_envs)]

    def gives_masks(self, info: Any) -> bool:
        return gives_masks(self.own_spaces[0], self.single_action_space, info)

    def read_masks(self) -> None:
        """Put a mask behind each observation, from the next reset on."""
        self._mask_of = MaskReader(self.own_spaces[0], self.single_action_space)
        self.masks = Behind(self._obs_shape, self._mask_of.sizes)
        self._row_shape = (self.masks.width,)
        self._last_obs = None
        self._lay_out()

    def _advance(self, actions: NDArray[Any]) -> Step:
        num_envs, obs, numbers, spans = self.num_envs, self._obs, self._numbers, self._spans
        reward = np.zeros(num_envs)
        terminated, truncated = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        infos: dict[int, dict[Any, Any]] = {}
        gather = self._step_info is True
        last = self._length >= self._limit if self._step_info == "final" else None
        at, steps, observed, on_tick = self.at, self._steps, self._observed, self.on_tick
        mask_of = self._mask_of
        if self._stepping is not None:  # the others stay where they are
            assert self._last_obs is not None
            self._rows[:] = self._last_obs
        for row in range(num_envs) if self._stepping is None else self._stepping.tolist():
            at[0] = row
            UNSTABLE.clear()
            try:
                returned = steps[row](actions[row])
                if returned.__class__ is not tuple or len(returned) != 5:
                    returned = five(returned)
                one, gain, ends, cuts, info = returned
                try:  # refuses another dtype or shape, and takes two thirds of the time of obs[row] = one
                    numbers[spans[row]] = one if one.__class__ is np.ndarray else None
                except (TypeError, ValueError, NotImplementedError):
                    obs[row] = observed(one)
                reward[row] = gain if gain.__class__ in REWARDS else reward_of(gain)
                if ends is not False:
                    terminated[row] = ends = flag(ends, "terminated")
                if cuts is not False:
                    truncated[row] = cuts = flag(cuts, "truncated")
                if mask_of is not None:
                    self._masks[row] = mask_of(one, info, ends, cuts)
            except BaseException as error:
                obs[row] = 0
                self._raised(row, "step", error)
            else:
                if UNSTABLE and not ends:
                    said = f"went on although MuJoCo has reset its simulation: {UNSTABLE[0]}"
                    self._fail(row, said, mild=True)
                if (gather or (last is not None and (last[row] or ends or cuts))) and isinstance(info, dict):
                    infos[row] = dict.copy(info)  # several may fill one and the same
            on_tick()
        return self._rows.copy(), reward, terminated, truncated, stacked(infos, num_envs) if infos else {}

    def _restart(self, rows: NDArray[np.intp], seeds: Seeds, options: Options) -> Begun:
        first = np.empty((len(rows), *self._row_shape), self._obs_dtype)
        infos: dict[int, dict[Any, Any]] = {}
        for k, row in enumerate(rows.tolist()):
            self.at[0] = row
            first[k], info = self._reset_one(row, seeds[k], options)
            if self._step_info is True and isinstance(info, dict):
                infos[row] = dict.copy(info)
            self.on_tick()
        return first, stacked(infos, self.num_envs)

    def _reset_one(self, row: int, seed: int | None, options: Options) -> tuple[NDArray[Any], Any]:
        """Reset one environment, to its row and info; if it raises or returns no observation, replace it and
        try another seed.
        """
        while True:
            try:
                own = {} if options is None else {"options": options}  # not every reset() takes them
                returned = self.envs[row].reset(seed=seed, **own)
                self._check_spaces(row)
                obs, info = self._observed.after_reset(returned)
                if self._mask_of is None:
                    return obs, info
                mask = self._mask_of(returned[0], info)
                return np.concatenate([obs.ravel(), mask], dtype=self._obs_dtype, casting="unsafe"), info
            except BaseException as error:
                self._raised(row, "reset", error)
                seed = self._repair(row)
                self._failed.discard(row)

    def _check_spaces(self, row: int) -> None:
        """Raise WrongReturn if a reset has given an environment spaces of another form."""
        now, before = spaces_of(self._own[row]), self._spaces[row]
        if now[0] is before[0] and now[1] is before[1]:
            return
        if said := difference(form_of(*now), self._form):
            raise WrongReturn(f"with other spaces than it was made with, {said}")
        self._spaces[row] = now

    def _keep(self) -> Any:
        return [keep_env(env) for env in self.envs]

    def _put_back(self, state: Any) -> None:
        put_envs_back(self.envs, state)

    def _place(self, row: int, method: str) -> str:
        return definition_of(getattr(type(self.envs[row].unwrapped), method, None))

    def _replace(self, row: int) -> None:
        self._close_one(row)
        while True:
            try:
                one = without_limit(self._make_one(row))
                seed_spaces(one, seed_for(self._seed + row, 1))
                self.envs[row] = fitted(self.env_id, one)
                self._own[row], self._spaces[row] = one, spaces_of(one)
                check_alike(self.env_id, row, form_of(*self._spaces[row]), self._form)
                break
            except InvalidEnvironment as error:  # it could be made before: perhaps it can again
                self._fail(row, f"could not be replaced: {error}", error)
        self._steps[row] = self.envs[row].step

    @theirs()
    def _close_one(self, row: int) -> None:
        """Close one environment; what it raises is only logged, since nothing depends on it any more."""
        try:
            self.envs[row].close()
        except BaseException as error:
            let_interrupts_pass(error)
            self.close_fault = f"close() raised {in_one_line(error)} [{place_of(error)}]"
            log.warning("%s", self._said(row, "close", error))

    def _said(self, row: int, method: str, error: BaseException) -> str:
        where = f"{self.env_id}: environment {self.first_row + row} of {self.num_rows}"
        return f"{where} raised in {method}: {in_one_line(error)} [{place_of(error)}]"

    def render(self) -> tuple[Any, ...]:
        """One frame of each environment.

        Raises:
            EnvironmentFailure: an environment raised.
        """
        return self.call("render")

    @theirs()
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method (or read an attribute) of each environment.

        Raises:
            EnvironmentFailure: an environment raised.
        """
        values = []
        for row, env in enumerate(self.envs):
            try:
                value = env.render if name == "render" else env.get_wrapper_attr(name)
                values.append(value(*args, **kwargs) if callable(value) else value)
            except BaseException as error:
                let_interrupts_pass(error)
                raise EnvironmentFailure(self._said(row, name, error)) from error
        return tuple(values)

    def close_extras(self, **kwargs: Any) -> None:
        """Close each environment."""
        for row in range(len(self.envs)):
            self._close_one(row)
