"""The rollout: the experience that samplers send to learners, on-policy and off-policy alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rollout:
    """``T`` steps of ``N`` environments, time-major, under one policy version.

    Arrays that a learner did not ask for are ``None``. ``obs[t + 1]`` is the observation that followed
    ``action[t]``, except where an episode ended at ``t``: there it is the first one of the next episode, and
    the episode's true final observation is the row of ``final_obs`` whose ``final_index`` is ``(t, n)``. A
    step that only resets an environment is never stored.

    Attributes:
        sampler: name of the process that made it, such as ``"sampler-0"``.
        incarnation: numbers the starts of that process.
        sequence: counts the rollouts of one incarnation from 0; a gap is a loss.
        produced: transitions that this incarnation has pushed on this channel, this rollout included.
        policy_version: version of the policy that acted; 0 stands for uniformly random actions.
        num_steps: ``T``.
        num_envs: ``N``.
        obs: ``[T + 1, N, *obs_shape]`` float32 or uint8.
        action: ``[T, N, *action_shape]`` float32 (box) or int64 (discrete), in the environment's own units.
        reward: ``[T, N]`` float32.
        terminated: ``[T, N]`` bool; the episode ended in a state of value zero.
        truncated: ``[T, N]`` bool; the episode was cut and its value must be bootstrapped from ``final_obs``.
        final_obs: ``[K, *obs_shape]``; one row for each ended episode.
        final_index: ``[K, 2]`` int32 of ``(t, n)``, sorted by ``t`` and then ``n``.
        log_prob: ``[T, N]`` float32; only if the algorithm asks for it.
        history: ``[k - 1, N, *obs_shape]``, the observations before ``obs[0]``, oldest first; before an
            episode's first one, that one repeated. Only if the networks take stacks of ``k``.
        memory: ``[N, M]`` float32, the state of a recurrent policy before the first action; zeros at an
            episode's first step. Only if the algorithm asks for it.
    """

    sampler: str
    incarnation: int
    sequence: int
    produced: int
    policy_version: int
    num_steps: int
    num_envs: int
    obs: NDArray[np.float32] | NDArray[np.uint8] | None = None
    action: NDArray[np.float32] | NDArray[np.int64] | None = None
    reward: NDArray[np.float32] | None = None
    terminated: NDArray[np.bool_] | None = None
    truncated: NDArray[np.bool_] | None = None
    final_obs: NDArray[np.float32] | NDArray[np.uint8] | None = None
    final_index: NDArray[np.int32] | None = None
    log_prob: NDArray[np.float32] | None = None
    history: NDArray[np.float32] | NDArray[np.uint8] | None = None
    memory: NDArray[np.float32] | None = None

    @property
    def num_transitions(self) -> int:
        """``T * N``."""
        return self.num_steps * self.num_envs

    @property
    def stream(self) -> str:
        """``NAME/INCARNATION`` of the sampler."""
        return f"{self.sampler}/{self.incarnation}"

    @property
    def acted_on(self) -> NDArray[np.float32] | NDArray[np.uint8]:
        """``[T * N, *obs_shape]``: the observations in which the actions were taken."""
        assert self.obs is not None
        return self.obs[:-1].reshape(self.num_transitions, *self.obs.shape[2:])

    def arrays(self, names: Iterable[str] | None = None) -> dict[str, NDArray[np.generic]]:
        """The arrays in ``names``, by default all, that this rollout has, in the order of the wire."""
        wanted = ARRAY_FIELDS if names is None else set(names)
        found = ((name, getattr(self, name)) for name in ARRAY_FIELDS if name in wanted)
        return {name: array for name, array in found if array is not None}


#: The array fields of a rollout, those with a default, in the order of the wire.
ARRAY_FIELDS = tuple(field.name for field in fields(Rollout) if field.default is None)
