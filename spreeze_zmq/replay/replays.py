"""The two replays: whole transitions for a critic, observations alone for an actor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.frames import stacked_shape
from spreeze_zmq.base.rollout import ARRAY_FIELDS, FIXED_ENTRIES, STEP_FIELDS, Rollout, after_steps
from spreeze_zmq.envs.packed import Packing, flat
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.replay.batches import Batch
from spreeze_zmq.replay.episodes import MASK
from spreeze_zmq.replay.frame_ring import FrameRing
from spreeze_zmq.replay.packed_ring import PackedRing
from spreeze_zmq.replay.relabelling import Relabeller, Relabelling
from spreeze_zmq.replay.reward_scale import ReturnScale
from spreeze_zmq.replay.ring import Column, Ring
from spreeze_zmq.replay.saved_ring import Put


def further_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """Of the rollout arrays that a learner asks for, those that a replay keeps beside its own: one entry for
    each step and environment.
    """
    own = {"obs", "action", "reward", "terminated", "truncated"}
    return tuple(name for name in fields if name in STEP_FIELDS and name not in own)


class ReplaySettings(Protocol):
    """The options of an algorithm that a replay needs; ``ReplayOptions`` of the algorithms has them.

    Attributes:
        replay_capacity: transitions kept.
        gamma: discount of one step.
        n_step: largest number of rewards summed.
        frame_stack: observations that the networks take at once; above 1 for uint8 only.
        prioritized: whether transitions are drawn by priority.
        priority_alpha: 0 draws uniformly, 1 in proportion to the errors.
        priority_beta: 1 corrects the whole bias of the drawing, 0 none.
        largest_return: size that the largest return shall have once rewards are divided; None leaves them.
    """

    replay_capacity: int
    gamma: float
    n_step: int
    frame_stack: int
    prioritized: bool
    priority_alpha: float
    priority_beta: float

    @property
    def largest_return(self) -> float | None:
        """See the class."""


class _RingReplay:
    """What both replays do with their ring."""

    prioritized = False
    #: What rewards are divided by when they are drawn; None leaves them as they are.
    scale: ReturnScale | None = None
    #: Makes further transitions of the episodes that have ended; None keeps transitions as they came.
    relabeller: Relabeller | None = None
    #: Further arrays that are kept.
    more: tuple[str, ...] = ()

    def __init__(self, ring: Ring, packing: Packing | None, options: ReplaySettings):
        self.ring, self.packing = ring, packing
        self.gamma, self.n_step = options.gamma, options.n_step
        self._num_sampled: NDArray[np.float64] = np.zeros(1)

    def relabel_by(self, how: Relabelling) -> None:
        """From now on, keep what a relabelling makes of each episode, too."""
        drawn = partial(self.ring.looked_up, "obs")
        masks = tuple(column.name for column in self.ring.columns if column.name == MASK)
        about = (*self.more, *masks), drawn, self.scale
        self.relabeller = Relabeller(how, self.gamma, self.n_step, *about)

    @property
    def num_sampled(self) -> int:
        """Transitions that have been added as they came, since it was empty."""
        return int(self._num_sampled[0])

    @num_sampled.setter
    def num_sampled(self, number: int) -> None:
        self._num_sampled[0] = number

    def _added(self, rollout: Rollout) -> None:
        """Count the steps of a rollout, which are stored, and store what relabelling makes of the episodes
        that end in it.
        """
        self._num_sampled += rollout.num_transitions
        if self.relabeller is not None:
            for rows in self.relabeller.rows(flat(rollout, self.packing)):
                self.ring.write(rows)

    def __len__(self) -> int:
        return len(self.ring)

    def unfit(self, rollout: Rollout) -> str:
        """Why a rollout that fits the environment cannot be kept; empty if it can."""
        return self.ring.unfit(rollout)

    def keep_in(self, descriptor: int) -> None:
        """Hold the transitions, their number, and what rewards are divided by in memory that outlives this
        process (``kept_memory``), and recover what an earlier process left there. A replay on a GPU stays
        where it is.
        """
        if self.ring.device.type == "cpu":
            num_counts = 0 if self.scale is None else self.scale.counts.size
            numbers = self.ring.keep_in(descriptor, 1 + num_counts)
            self._num_sampled = numbers[:1]
            if self.scale is not None:
                self.scale.keep_in(numbers[1:])

    def save(self, put: Put) -> None:
        """Have each file of this replay put into a checkpoint, npy without pickle."""
        self.ring.save(put)

    def load(self, folder: Path | str) -> None:
        """Continue from the files of ``save`` in ``folder``. Raises CheckpointError."""
        with self.ring.filling():  # who is killed in it leaves rows without their frames
            self.ring.load(Path(folder))


def n_step_returns(
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    n_step: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """Sums of up to ``n_step`` discounted rewards, cut at the end of an episode and of the rollout.

    All arguments and results are ``[T, N]``. Returns the sums ``R_t = sum over k < m of gamma^k r_(t+k)``;
    the discounts ``gamma^m``, 0 after termination (Sutton and Barto 2018, equation 12.1 with ``m <= n_step``
    rewards before the cut); and the time ``t + m - 1`` of the last reward in each sum.
    """
    num_steps = len(reward)
    ended = terminated | truncated
    returns = np.array(reward, np.float32)
    last = np.broadcast_to(np.arange(num_steps)[:, None], reward.shape).copy()
    running = ~ended
    for k in range(1, min(n_step, num_steps)):
        running = running[:-1]  # drop the row whose k-th successor is beyond the rollout
        returns[:-k] += np.where(running, np.float32(gamma**k) * reward[k:], np.float32(0.0))
        last[:-k] += running
        running = running & ~ended[k:]
    steps = last - np.arange(num_steps)[:, None] + 1
    discount = np.power(np.float64(gamma), steps).astype(np.float32)
    discount[np.take_along_axis(terminated, last, 0)] = 0.0
    return returns, discount, last


class Replay(_RingReplay):
    """Whole transitions with n-step returns, for a critic.

    Args:
        env: gives shapes and dtypes; observations keep the environment's dtype.
        options: the algorithm's options.
        device: the device of the transitions.
        seed: seed of the sampling.
        more: further arrays of the rollouts, which batches have by name, those of the first of ``n_step``
            steps.

    Raises:
        InputError: it does not fit in the memory that is free.
    """

    #: Bytes that a subclass keeps for each transition outside the ring.
    bytes_beside = 0

    def __init__(
        self,
        env: EnvironmentSpec,
        options: ReplaySettings,
        device: torch.device | str = "cpu",
        seed: int = 0,
        more: Sequence[str] = (),
    ):
        self.more, self._kind = tuple(more), Batch.having(more)
        settings = {"gamma": options.gamma, "n_step": options.n_step}
        beside = self.bytes_beside
        action_dtype = "float32" if env.action_kind == "box" else "int64"
        action = Column("action", action_dtype, tuple(env.action_shape))
        numbers = (Column("reward", "float32", ()), Column("discount", "float32", ()), *_columns(more, env))
        if env.action_mask:
            masks = ("action_mask", "next_action_mask")
            numbers += tuple(Column(name, "bool", (env.num_choices,)) for name in masks)
        about = device, seed, beside, settings
        super().__init__(self._ring_of(env, options, (action, *numbers), about), Packing.of(env), options)
        if options.largest_return is not None:
            self.scale = ReturnScale(options.gamma, options.largest_return)

    def _ring_of(
        self, env: EnvironmentSpec, options: ReplaySettings, columns: Sequence[Column], about: Sequence[Any]
    ) -> Ring:
        """The table of observations and ``columns``; ``about`` is the rest of a ring's arguments."""
        capacity, (action, *numbers) = options.replay_capacity, columns
        if env.obs_dtype == "uint8":
            return FrameRing(capacity, columns, env.obs_shape, options.frame_stack, True, *about)
        obs, next_obs = (Column(name, env.obs_dtype, env.obs_shape) for name in ("obs", "next_obs"))
        each = obs, action, next_obs, *numbers
        if packing := Packing.of(env):
            return PackedRing(capacity, packing, each, *about)
        return Ring(capacity, each, *about)

    def restate(self, options: ReplaySettings) -> None:
        """Use other values of the options that may move while the algorithm trains."""

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` transitions of a rollout."""
        assert rollout.action is not None
        assert rollout.reward is not None
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        returns, discount, last = n_step_returns(
            rollout.reward, rollout.terminated, rollout.truncated, self.gamma, self.n_step
        )
        fields: dict[str, NDArray[Any]] = {"action": rollout.action, "reward": returns, "discount": discount}
        if self.more:
            fields.update((name, getattr(rollout, name)) for name in self.more)
        if rollout.action_mask is not None:
            assert rollout.final_action_mask is not None
            fields["action_mask"] = rollout.action_mask[:-1]
            following = after_steps(rollout, rollout.action_mask, rollout.final_action_mask, last)
            fields["next_action_mask"] = following
        self._store(rollout, fields, last)
        self._added(rollout)
        if self.scale is not None:
            self.scale.add(rollout)

    def _store(self, rollout: Rollout, fields: Mapping[str, NDArray[Any]], last: NDArray[np.intp]) -> None:
        """Write ``fields`` ``[T, N, ...]`` and the observations of a rollout to the table."""
        self.ring.add(rollout, fields, None if self.n_step == 1 else last)

    def sample(self, batch_size: int) -> Batch:
        """``batch_size`` transitions drawn uniformly with replacement; valid until the next call."""
        return self._batch(self.ring.gather(batch_size))

    def _batch(self, rows: Mapping[str, torch.Tensor]) -> Batch:
        """Rows of the ring, which keeps rewards as they came."""
        if self.scale is not None:
            rows["reward"].mul_(1.0 / self.scale.divisor)
        return self._kind(**rows)

    def prioritize(self, errors: torch.Tensor) -> None:
        """Set priorities from the errors ``[B]`` of the last batch; a uniform replay ignores them."""

    def forget_errors(self) -> None:
        """Draw all transitions alike until errors of theirs come again, as a uniform replay always does."""


def _columns(more: Sequence[str], env: EnvironmentSpec) -> Iterator[Column]:
    """The columns of further arrays, in the first dtype that each may have."""
    entries = {**FIXED_ENTRIES, "obs": env.obs_shape, "action": env.action_shape}
    for name in more:
        form = ARRAY_FIELDS[name]
        yield Column(name, form.dtypes[0], tuple(entries[form.entry]))


class ObservationReplay(_RingReplay):
    """Observations alone, for an actor; arguments as for ``Replay``."""

    def __init__(
        self, env: EnvironmentSpec, options: ReplaySettings, device: torch.device | str = "cpu", seed: int = 0
    ):
        capacity, shape, stack = options.replay_capacity, tuple(env.obs_shape), options.frame_stack
        masks = (Column("action_mask", "bool", (env.num_choices,)),) if env.action_mask else ()
        self._masked = bool(masks)
        ring: Ring
        if packing := Packing.of(env):
            ring = PackedRing(capacity, packing, (Column("obs", env.obs_dtype, shape), *masks), device, seed)
        elif stack > 1 or (env.obs_dtype == "uint8" and stacked_shape(shape, 1) != shape):
            ring = FrameRing(capacity, masks, shape, stack, False, device, seed)
        else:
            ring = Ring(capacity, (Column("obs", env.obs_dtype, shape), *masks), device, seed)
        super().__init__(ring, packing, options)

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` observations that were acted on."""
        masks = rollout.action_mask
        self.ring.add(rollout, {} if masks is None else {"action_mask": masks[:-1]})
        self._added(rollout)

    def sample(self, batch_size: int) -> torch.Tensor | Mapping[str, torch.Tensor]:
        """``[B, *stacked_shape]`` drawn uniformly with replacement, valid until the next call; with action
        masks ``obs`` and ``action_mask`` ``[B, A]`` by name.
        """
        rows = self.ring.gather(batch_size)
        return {name: rows[name] for name in ("obs", "action_mask")} if self._masked else rows["obs"]
