"""What becomes of environments of a batch that fail: each is named, counted and given another seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure, in_one_line, let_interrupts_pass, place_of
from spreeze_zmq.base.rollout import within_limits
from spreeze_zmq.envs.door import WrongReturn, odd_rows
from spreeze_zmq.envs.failures import Failures
from spreeze_zmq.envs.infos import Begun, Options, Seeds, overlay
from spreeze_zmq.envs.processes import end_fork
from spreeze_zmq.envs.seeds import seed_after_failure
from spreeze_zmq.envs.settings import called, watched


class FailingRows(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """The part of a batch that knows which of its environments failed in a step, and says so.

    Attributes:
        env_id: name of the environment.
        num_envs: environments of this batch.
        failures: counts failures; by default the first one is raised.
        first_row: number of the first environment within a larger batch of ``num_rows``.
        restarts: how often the process of these environments has been replaced.
    """

    def __init__(self, env_id: str, num_envs: int, seed: int) -> None:
        self.env_id, self.num_envs = env_id, num_envs
        self.failures = Failures(0)
        self.first_row, self.num_rows, self.restarts = 0, num_envs, 0
        self._num_steps = 0
        self._started = False
        self._is_new = True  # no step was taken since an environment was made
        self._length = np.zeros(num_envs, np.int64)
        self._seed = seed
        self._failed: set[int] = set()
        self._pid = os.getpid()

    def _restart(self, rows: NDArray[np.intp], seeds: Seeds, options: Options) -> Begun:
        """Reset ``rows`` with one seed each; observations ``[len(rows), *obs]`` and the info ``[N, ...]``."""
        raise NotImplementedError

    def _replace(self, row: int) -> None:
        """Replace an environment that failed by a new one, where a reset alone does not repair it."""

    def _place(self, row: int, method: str) -> str:
        """``file:line`` of an environment's own method; empty if it is not the user's."""
        return ""

    def _repair(self, row: int) -> int | None:
        """Repair an environment that failed; returns a new seed, with which the next episode differs. None
        continues a random state.
        """
        self._replace(row)
        self._is_new = True
        return seed_after_failure(self._seed, self.first_row + row, self.failures.count, self.restarts)

    def _first_step(self) -> Callable[..., Any]:
        """What a step is taken by where an environment is new: what that sets for the process is its own.

        Raises:
            EnvironmentFailure: there was no reset.
        """
        if not self._started:
            raise EnvironmentFailure(f"{self.env_id}: call reset() before step()")
        self._is_new = False
        return watched

    def _find_failed(self, obs: NDArray[Any], reward: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Note each environment whose numbers are not finite; returns the mask ``[N]`` of all that failed in
        this step, or ``None``.
        """
        if not self._failed and within_limits(reward) and within_limits(obs):
            return None
        for row, what in odd_rows(obs, reward):
            if row not in self._failed:
                self._fail(row, f"gave {what}")
        failed = np.zeros(self.num_envs, np.bool_)
        failed[list(self._failed)] = True
        return failed if self._failed else None

    def _fail(
        self, rows: int | Sequence[int], what: str, error: BaseException | None = None, *, mild: bool = False
    ) -> None:
        """Note that one environment failed, or several at once, which counts as one failure, ``mild`` or not.

        Raises:
            EnvironmentFailure: there are more failures than are tolerated.
        """
        failed = [rows] if isinstance(rows, int) else list(rows)
        first = self.first_row + failed[0]
        some = f"environment {first}"
        if len(failed) > 1:
            some = f"environments {first} to {first + len(failed) - 1}"
        steps = f"step {self._num_steps} of this batch, step {int(self._length[failed[0]])} of its episode"
        self._failed.update(failed)
        self.failures.note(f"{self.env_id}: {some} of {self.num_rows} {what} ({steps})", error, mild=mild)

    def _raised(self, rows: int | Sequence[int], method: str, error: BaseException) -> None:
        """Note that ``error`` came of a call of environments; raises as ``_fail`` does, and Ctrl-C again. A
        process that an environment has forked ends here, as it would by itself.
        """
        if os.getpid() != self._pid:
            end_fork(error)
        let_interrupts_pass(error)
        if isinstance(error, WrongReturn):
            place = self._place(rows if isinstance(rows, int) else rows[0], method)
            self._fail(rows, f"returned from {method} {error}" + (f" [{place}]" if place else ""))
        else:
            place = f" [{place}]" if (place := place_of(error)) else ""
            self._fail(rows, f"raised in {method}: {in_one_line(error)}{place}", error)

    def _begin(self, rows: NDArray[np.intp], seeds: Seeds, options: Options) -> Begun:
        """Reset ``rows``, and again those whose first observation is not finite."""
        by: Callable[..., Begun] = watched if self._is_new else called
        first, info = by(self._restart, rows, seeds, options)
        while not within_limits(first) and (odd := dict(odd_rows(first))):
            bad = list(odd)
            again = rows[bad]
            for row, what in zip(again.tolist(), odd.values(), strict=True):
                self._fail(row, f"began with {what}")
            self._failed.clear()
            first = first.copy()
            new_seeds = [self._repair(row) for row in again.tolist()]
            first[bad], reset_info = watched(self._restart, again, new_seeds, options)
            mask = np.zeros(self.num_envs, np.bool_)
            mask[again] = True
            info = overlay(info, reset_info, mask)
        return first, info
