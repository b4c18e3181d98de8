"""The table of a replay of images: stores each frame once and gathers the stacks when they are drawn."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.errors import CheckpointError, InputError
from spreeze_zmq.base.frames import channels_first, has_channels_last, stack_times, stacked_shape
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.replay.episodes import LastRollouts
from spreeze_zmq.replay.ring import Column, Ring
from spreeze_zmq.replay.saved_ring import Put, put_array

#: Frames stored per transition: one, and a final frame for every 16 steps (episodes of 16 steps or longer).
FRAMES_PER_TRANSITION = 17 / 16
#: Transitions of a recovered table that are checked for lost frames, and dropped, together.
RECOVERED_TOGETHER = 64


class FrameRing(Ring):
    """Transitions whose observations are rows of a second ring, which holds single frames.

    A rollout that continues the last one of its sampler shares that rollout's frames. A transition can be
    drawn as long as none of its frames has been overwritten: with very short episodes or restarted samplers,
    somewhat fewer than ``capacity`` transitions can.

    Args:
        capacity: transitions.
        columns: the fields of a transition beside its observations.
        obs_shape: shape of one observation of the environment.
        stack: observations in a stack, ``k``.
        with_next: whether a transition has a next observation.
        device: the device of both tables.
        seed: seed of the sampling.
        bytes_beside: bytes per transition that the owner keeps elsewhere.
        settings: numbers that a saved replay must share to be loaded.

    Raises:
        InputError: it does not fit in the memory that is free.
    """

    def __init__(
        self,
        capacity: int,
        columns: Sequence[Column],
        obs_shape: tuple[int, ...],
        stack: int,
        with_next: bool,
        device: torch.device | str,
        seed: int,
        bytes_beside: int = 0,
        settings: Mapping[str, float] | None = None,
    ):
        self._obs_shape, self._stack = tuple(obs_shape), stack
        self._seen_shape = stacked_shape(self._obs_shape, stack)
        num_frames = math.ceil(capacity * FRAMES_PER_TRANSITION)
        beside = bytes_beside + math.ceil(num_frames * math.prod(obs_shape) / capacity)
        rows = Column("frames", "int64", (1 + with_next, stack))  # numbered from the first frame ever written
        super().__init__(capacity, (*columns, rows), device, seed, beside, settings)
        frame = Column("frame", "uint8", stacked_shape(self._obs_shape, 1))
        self._frames = Ring(num_frames, [frame], device, seed, settings={"stack": stack})
        self._with_next = with_next
        self._first = 0
        #: For each rollout: number of transitions up to its end, and the oldest frame that it uses.
        self._rollouts: deque[tuple[int, int]] = deque()
        self._last = LastRollouts()  # the frames [N, k] of each sampler's last observations
        self._images = torch.empty(0)
        self._seen: dict[str, torch.Tensor] = {}

    @property
    def first(self) -> int:
        """Number of the oldest transition that has all its frames."""
        return max(super().first, self._first)

    # --- writing

    def add(
        self, rollout: Rollout, fields: Mapping[str, NDArray[Any]], last: NDArray[np.intp] | None = None
    ) -> None:
        """As every ring; stacks of several observations need the rollout's ``history`` and the ends of its
        episodes.

        Raises:
            InputError: the frames of one rollout do not fit.
        """
        if self._stack == 1:  # a stack that reaches over no end
            ended = np.zeros((rollout.num_steps, rollout.num_envs), np.bool_)
        else:
            assert rollout.terminated is not None
            assert rollout.truncated is not None
            ended = rollout.terminated | rollout.truncated
        frames = self._place(rollout)
        envs = np.arange(rollout.num_envs)
        stacks = frames[stack_times(ended, self._stack), envs[:, None]]  # [T + 1, N, k]
        used = [stacks[:-1]]
        if self._with_next:
            following, ends = stacks[1:].copy(), rollout.ended_at
            finals = np.arange(len(ends[0])) + self._frames.num_added
            following[ends] = np.concatenate([stacks[ends][:, 1:], finals[:, None]], 1)
            assert rollout.final_obs is not None
            self._write(rollout.final_obs)
            used.append(following if last is None else following[last, envs])
        both = np.stack(used, 2)  # [T, N, 1 or 2, k]
        self._write_steps({**fields, "frames": both})
        self._rollouts.append((self.num_added, int(both.min())))
        self._last.keep(rollout, stacks[-1])
        self._drop_incomplete()

    def _place(self, rollout: Rollout) -> NDArray[np.intp]:
        """Write the observations; returns ``[k + T, N]``, its frames and those of the stack before."""
        obs, history = rollout.obs, rollout.history
        assert obs is not None
        before = self._frames_before(rollout)
        if before is not None:
            new = [obs[1:]]
        elif self._stack == 1:
            new = [obs]
        else:
            assert history is not None
            new = [history, obs]
        steps = sum(map(len, new))
        begin = self._frames.num_added
        for array in new:
            self._write(array.reshape(-1, *array.shape[2:]))
        own = begin + np.arange(steps * rollout.num_envs).reshape(steps, rollout.num_envs)
        return own if before is None else np.concatenate([before.T, own])

    def _frames_before(self, rollout: Rollout) -> NDArray[np.intp] | None:
        """The stack ``[N, k]`` of the rollout's first observation, if the rollout before has stored it here.

        Raises:
            InputError: the frames of one rollout do not fit.
        """
        num_final = 0 if rollout.final_index is None else len(rollout.final_index)
        most = (rollout.num_steps + self._stack) * rollout.num_envs + num_final
        if most > self._frames.capacity:
            raise InputError(
                f"a rollout of {rollout.num_steps} steps of {rollout.num_envs} environments has up to "
                f"{most:,} frames, the replay has room for {self._frames.capacity:,}: raise "
                "algorithm.replay_capacity"
            )
        stacks = self._last.before(rollout)
        oldest = max(0, self._frames.num_added + most - self._frames.capacity)
        return stacks if stacks is not None and stacks.min() >= oldest else None

    def _write(self, frames: NDArray[Any]) -> None:
        """Append ``[M, *obs_shape]``."""
        if len(frames):
            turned = channels_first(frames) if has_channels_last(self._obs_shape) else frames
            self._frames.write({"frame": turned})

    def _drop_incomplete(self) -> None:
        """Exclude transitions from the sampling that have lost a frame."""
        oldest = self._frames.num_added - self._frames.capacity
        lost = [end for end, frame in self._rollouts if frame < oldest]
        self._first = max(self._first, *lost[-1:], 0)
        while self._rollouts and self._rollouts[0][0] <= self.first:
            self._rollouts.popleft()

    # --- reading

    def take(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """The transitions ``index`` ``[B]`` with ``obs`` and ``next_obs`` ``[B, *stacked_shape]``.

        The tensors are valid until the next call.
        """
        transitions = super().take(index)
        images = self._frames.take(transitions["frames"].reshape(-1) % self._frames.capacity)["frame"]
        if images is not self._images:
            self._images = images
            seen = images.view(len(index), 1 + self._with_next, *self._seen_shape)
            self._seen = {name: transitions[name] for name in transitions if name != "frames"}
            self._seen |= dict(zip(("obs", "next_obs"), seen.unbind(1), strict=False))
        return self._seen

    # --- files

    def streams(self) -> dict[str, torch.Tensor]:
        """Sampler -> the frames ``[N, k]`` of its last observations."""
        return self._last.state()

    def go_on(self, streams: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`streams`."""
        fall = self._frames.renumbered
        self._last.go_on({sampler: frames - fall for sampler, frames in streams.items()})

    def save(self, put: Put, prefix: str = "") -> None:
        """As every ring, with the frames in files of their own."""
        super().save(put, prefix)
        self._frames.save(put, f"{prefix}frames-")
        about = np.array([(self._first, 0), *self._rollouts], np.int64)
        put_array(put, f"{prefix}rollouts.npy", about)

    def load(self, folder: Path, prefix: str = "") -> None:
        """Continue from ``save``. Raises CheckpointError."""
        super().load(folder, prefix)
        self._frames.load(folder, f"{prefix}frames-")
        try:
            rollouts = np.load(folder / f"{prefix}rollouts.npy", allow_pickle=False)
            falls = self.renumbered, self._frames.renumbered
            (first, _), *kept = (rollouts.astype(np.int64) - falls).tolist()
        except (OSError, ValueError) as error:
            raise CheckpointError(f"the replay in {folder} cannot be read: {error}") from error
        self._first, self._rollouts = max(0, first), deque((end, frame) for end, frame in kept)
        dtype, place = self._places["frames"]
        self._tables[dtype][:, place] -= falls[1]
        self._drop_incomplete()  # there may be room for fewer
        rows = self._frames_of_all()[self.first - super().first :]
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self._frames.num_added:
            raise CheckpointError(f"the replay in {folder} refers to frames that it does not hold")

    def keep_in(self, descriptor: int, beside: int) -> NDArray[np.float64]:
        """As every ring; transitions that have lost a frame are not drawn."""
        numbers = super().keep_in(descriptor, beside)
        self._first, self._rollouts = 0, deque()
        end = super().first
        for together in torch.split(self._frames_of_all(), RECOVERED_TOGETHER):
            if num := len(together):
                self._rollouts.append((end := end + num, int(together.min())))
        self._drop_incomplete()
        return numbers

    def _rings(self) -> list[Ring]:
        return [self, self._frames]

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "stack": self._stack}

    def _frames_of_all(self) -> torch.Tensor:
        """``[num_stored, (1 or 2) k]``: the frames of each transition, oldest transition first."""
        dtype, place = self._places["frames"]
        return torch.roll(self._tables[dtype][: self.num_stored, place], -(super().first % self.capacity), 0)
