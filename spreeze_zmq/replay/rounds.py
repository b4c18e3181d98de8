"""Rounds of rollouts for an on-policy learner, trained on for some epochs and then discarded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.frames import channels_first, has_channels_last, stack_times, stacked_shape
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay.reward_scale import RewardScale


@dataclass(frozen=True)
class Round:
    """``T`` steps of all environments of a round, time-major; the rollouts are joined along ``N``.

    Attributes:
        obs: ``[T + 1, N, *obs_shape]``; for images ``[T + 1, N, stack * channels, height, width]``.
        action: ``[T, N, *action_shape]`` as the policy drew it.
        reward: ``[T, N]`` float32.
        terminated: ``[T, N]`` bool.
        truncated: ``[T, N]`` bool.
        log_prob: ``[T, N]`` float32, of the policy that acted.
        final_obs: ``[K, ...]`` like ``obs``, the final observation of each episode that ended.
        final_index: ``[K, 2]`` int64 of ``(t, n)``.
        begins: ``[T + 1, N]`` bool, whether an observation is an episode's first; False at ``t = 0``, where
            the zeros of ``memory`` show it.
        memory: ``[N, M]`` float32, a recurrent policy's memory before the first step; None for others.
        action_mask: ``[T + 1, N, A]`` bool, the actions that were legal at ``obs``; None where the
            environment gives no masks.
        final_action_mask: ``[K, A]`` the same at ``final_obs``.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    log_prob: torch.Tensor
    final_obs: torch.Tensor
    final_index: torch.Tensor
    begins: torch.Tensor
    memory: torch.Tensor | None = None
    action_mask: torch.Tensor | None = None
    final_action_mask: torch.Tensor | None = None

    def _replace(self, **fields: Any) -> Round:
        """A copy with other values of some fields, as of a ``NamedTuple``."""
        return replace(self, **fields)


class RoundStore:
    """Gathers rollouts into rounds of ``rollouts_per_round``.

    Args:
        rollouts_per_round: number of samplers, each of which gives one rollout.
        device: the device of the rounds.
        scale: scales the rewards; None leaves them as they are.
        stack: observations that the networks take at once; above 1 for uint8 only.
    """

    def __init__(
        self,
        rollouts_per_round: int,
        device: torch.device | str,
        scale: RewardScale | None = None,
        stack: int = 1,
    ) -> None:
        self._stack = stack
        self._per_round = rollouts_per_round
        self._device = torch.device(device)
        self._scale = scale
        self._waiting: list[Rollout] = []

    def __len__(self) -> int:
        """Transitions that wait to be trained on."""
        return sum(rollout.num_transitions for rollout in self._waiting)

    @property
    def complete(self) -> bool:
        """Whether a whole round has arrived."""
        return len(self._waiting) >= self._per_round

    @property
    def newest_version(self) -> int:
        """The newest policy version among the rollouts of the next round."""
        return max(rollout.policy_version for rollout in self._waiting[: self._per_round])

    def unfit(self, rollout: Rollout) -> str:
        """Why a rollout cannot be joined with the others of its round; empty if it can."""
        expected = self._waiting[0].num_steps if self._waiting else rollout.num_steps
        if rollout.num_steps == expected:
            return ""
        return f"num_steps is {rollout.num_steps}, expected {expected} as of those of its round"

    def add(self, rollout: Rollout) -> None:
        """Keep one rollout; it must not be :meth:`unfit`."""
        if self._scale is not None:
            rollout = replace(rollout, reward=self._scale(rollout))
        self._waiting.append(rollout)

    def take(self) -> tuple[Round, list[Rollout]]:
        """Remove the next round from the store; returns it and its rollouts."""
        rollouts, self._waiting = self._waiting[: self._per_round], self._waiting[self._per_round :]
        index, before = [], 0
        for rollout in rollouts:
            assert rollout.final_index is not None
            index.append(rollout.final_index.astype(np.int64) + np.array((0, before)))
            before += rollout.num_envs

        def joined(name: str, axis: int) -> torch.Tensor:
            arrays = [getattr(rollout, name) for rollout in rollouts]
            return torch.from_numpy(np.concatenate(arrays, axis)).to(self._device)

        seen = [stacked(rollout, self._stack) for rollout in rollouts]
        terminated, truncated = joined("terminated", 1), joined("truncated", 1)
        ended = terminated | truncated
        masks = {}
        if rollouts[0].action_mask is not None:
            masks = {"action_mask": joined("action_mask", 1)}
            masks["final_action_mask"] = joined("final_action_mask", 0)
        joined_round = Round(
            obs=torch.from_numpy(np.concatenate([obs for obs, _ in seen], 1)).to(self._device),
            action=joined("action", 1),
            reward=joined("reward", 1),
            terminated=terminated,
            truncated=truncated,
            log_prob=joined("log_prob", 1),
            final_obs=torch.from_numpy(np.concatenate([final for _, final in seen])).to(self._device),
            final_index=torch.from_numpy(np.concatenate(index)).to(self._device),
            begins=torch.cat([torch.zeros_like(ended[:1]), ended]),
            memory=None if rollouts[0].memory is None else joined("memory", 0),
            **masks,
        )
        return joined_round, rollouts

    def drop_older(self, version: int) -> list[Rollout]:
        """Drop and return the rollouts of policies older than ``version``."""
        dropped = [rollout for rollout in self._waiting if rollout.policy_version < version]
        self._waiting = [rollout for rollout in self._waiting if rollout.policy_version >= version]
        return dropped


def stacked(rollout: Rollout, stack: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The observations ``[T + 1, N, *seen]`` and final observations ``[K, *seen]`` of a rollout as networks
    take them: images channels first and in stacks of ``stack``.
    """
    obs, final_obs, history = rollout.obs, rollout.final_obs, rollout.history
    assert obs is not None
    assert final_obs is not None
    assert rollout.terminated is not None
    assert rollout.truncated is not None
    shape = obs.shape[2:]
    if obs.dtype != np.uint8:
        return obs, final_obs
    turned = channels_first if has_channels_last(shape) else np.asarray
    frames, finals, seen = turned(obs), turned(final_obs), stacked_shape(shape, stack)
    if stack > 1:
        assert history is not None
        ended = rollout.terminated | rollout.truncated
        before = np.concatenate([turned(history), frames])
        frames = before[stack_times(ended, stack), np.arange(rollout.num_envs)[:, None]]
        finals = np.concatenate([frames[rollout.ended_at][:, 1:], finals[:, None]], 1)
    return frames.reshape(*obs.shape[:2], *seen), finals.reshape(len(finals), *seen)


class Minibatches:
    """The batches of a round: every transition once in each of ``epochs``, each epoch in another order; the
    last batch of an epoch takes the rest. For a recurrent policy the steps of an environment stay together:
    a batch holds as many environments as fit into ``batch_size`` transitions, at least one.

    Args:
        fields: ``[B, ...]`` each; for a recurrent policy ``[T, N, ...]``, with a ``memory`` of ``[1, N, M]``.
        epochs: number of passes over the round.
        batch_size: transitions of a batch.
    """

    def __init__(self, fields: Mapping[str, torch.Tensor], epochs: int, batch_size: int) -> None:
        self._fields, self._epochs = fields, epochs
        shape = fields["log_prob"].shape
        self._axis = int("memory" in fields)
        self._size = shape[self._axis]
        self._batch_size = max(1, batch_size // shape[0]) if self._axis else batch_size

    def __len__(self) -> int:
        """Number of batches in all epochs."""
        return self._epochs * -(-self._size // self._batch_size)

    def drawn(self, generator: torch.Generator) -> Iterator[dict[str, torch.Tensor]]:
        """The batches, in orders drawn from ``generator``."""
        for _ in range(self._epochs):
            order = torch.randperm(self._size, generator=generator, device=generator.device)
            mixed = {name: value.index_select(self._axis, order) for name, value in self._fields.items()}
            for start in range(0, self._size, self._batch_size):
                count = min(self._batch_size, self._size - start)
                yield {name: value.narrow(self._axis, start, count) for name, value in mixed.items()}
