"""The replay of an off-policy algorithm with a memory: sequences of steps with the memory that the policy had
before the first one (R2D2, Kapturowski et al. 2019, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout, next_observations
from spreeze_zmq.envs.packed import Packing, packed
from spreeze_zmq.envs.spec import EnvironmentSpec
from spreeze_zmq.replay.batches import Batch
from spreeze_zmq.replay.episodes import LastRollouts
from spreeze_zmq.replay.packed_ring import PackedRing
from spreeze_zmq.replay.prioritized import PrioritizedReplay
from spreeze_zmq.replay.replays import ObservationReplay, Replay, ReplaySettings, further_fields
from spreeze_zmq.replay.ring import Column, Ring

#: What a sequence has beside the fields of transitions, by the names of a batch.
BESIDE = ("begins", "last", "memory", "follows", "earlier")


class SequenceSettings(ReplaySettings, Protocol):
    """The further options that a replay of sequences needs.

    Attributes:
        memory_size: numbers that the policy keeps from step to step, ``M``.
        sequence_length: steps of a sequence, and of a rollout, ``T``.
        burn_in: whether a sequence comes with the one before it.
    """

    memory_size: int
    sequence_length: int
    burn_in: bool


class SequenceRing(Ring):
    """A table whose rows are sequences of ``steps`` transitions each.

    Args:
        capacity: transitions.
        steps: of a sequence.
        joined: whether each is drawn with the one before it.
        about: the rest of a ring's arguments.
    """

    def __init__(self, capacity: int, steps: int, joined: bool, *about: Any) -> None:
        self.transitions_per_row, self._joined = steps, joined
        self._last = LastRollouts()  # the numbers [N] of the rows of each sampler's last rollout
        super().__init__(max(1, capacity // steps), *about)

    def add(
        self, rollout: Rollout, fields: Mapping[str, NDArray[Any]], last: NDArray[np.intp] | None = None
    ) -> None:
        """Append a sequence of each environment; ``fields`` has the columns ``[N, ...]`` of all but what
        joins it to the sequence before.
        """
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        own = self.num_added + np.arange(rollout.num_envs)
        before = self._last.before(rollout)
        joints = {"before": np.full_like(own, -1) if before is None else before}
        joints["ended"] = rollout.terminated[-1] | rollout.truncated[-1]
        self.write({**fields, **joints} if self._joined else fields)
        self._last.keep(rollout, own)

    def take(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """The sequences ``index`` ``[B]``, with ``obs``, ``action`` and ``begins`` ``[B, 2 T, ...]`` of the
        one before, too, whose memory is ``earlier`` ``[B, M]``; anything, where ``follows`` ``[B]`` is False.

        The tensors are valid until the next call.
        """
        if not self._joined:
            return super().take(index)
        dtype, place = self._places["before"]
        with self._ingestion.reading():
            before = self._tables[dtype][:, place].index_select(0, index).squeeze(1)
        follows = before >= self.first
        both = super().take(torch.cat((torch.where(follows, before % self.capacity, index), index)))
        earlier, own = ({name: rows.chunk(2)[half] for name, rows in both.items()} for half in (0, 1))
        own["begins"][:, 0] = earlier["ended"] & follows
        joined = {name: torch.cat((earlier[name], own[name]), 1) for name in ("obs", "action", "begins")}
        del own["before"], own["ended"]
        return {**own, **joined, "follows": follows, "earlier": earlier["memory"]}

    def streams(self) -> dict[str, torch.Tensor]:
        """Sampler -> the rows ``[N]`` of its last rollout."""
        return self._last.state()

    def go_on(self, streams: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`streams`."""
        self._last.go_on({sampler: rows - self.renumbered for sampler, rows in streams.items()})

    def load(self, folder: Path, prefix: str = "") -> None:
        """As every ring."""
        super().load(folder, prefix)
        if self._joined:
            dtype, place = self._places["before"]
            self._tables[dtype][:, place] -= self.renumbered


class PackedSequenceRing(SequenceRing, PackedRing):
    """Likewise with packed observations; ``about`` begins with what ``PackedRing`` takes."""


class SequenceReplay(Replay):
    """Each rollout is a sequence of every environment, drawn as a whole. A batch of ``n`` of them has

    - the fields of a replay of transitions as ``[T, n, ...]``, time-major, and ``weight`` ``[1, n]``;
    - ``begins`` ``[T, n]`` bool, whether a step is an episode's first; False at ``t = 0`` of a sequence whose
      ``memory`` is used, where zeros show it;
    - ``last`` ``[T, n]`` int64, the step whose following observation is ``next_obs``;
    - ``memory`` ``[1, n, M]``, that of the policy that acted, before the first step.

    With ``burn_in``, ``obs``, ``action`` and ``begins`` are ``[2 T, n, ...]``: first those of the sequence
    before, whose memory is ``earlier`` ``[1, n, M]``. Where the replay does not have that, as of a sampler's
    first rollout, they are anything, and ``follows`` ``[1, n]`` is False.

    Arguments as for ``Replay``; a batch of ``batch_size`` transitions has ``batch_size // T`` sequences.
    """

    def __init__(
        self,
        env: EnvironmentSpec,
        options: SequenceSettings,
        device: torch.device | str = "cpu",
        seed: int = 0,
        more: Sequence[str] = (),
    ):
        self.steps, self._joined = options.sequence_length, options.burn_in
        self._memory_size = options.memory_size
        super().__init__(env, options, device, seed, more)
        self._kind = Batch.having((*more, *BESIDE))

    def _ring_of(
        self, env: EnvironmentSpec, options: ReplaySettings, columns: Sequence[Column], about: Sequence[Any]
    ) -> Ring:
        obs, next_obs = (Column(name, env.obs_dtype, tuple(env.obs_shape)) for name in ("obs", "next_obs"))
        each = obs, *columns, next_obs, Column("begins", "bool", ()), Column("last", "int64", ())
        rows = [replace(column, shape=(self.steps, *column.shape)) for column in each]
        rows.append(Column("memory", "float32", (self._memory_size,)))
        if self._joined:
            rows += (Column("before", "int64", ()), Column("ended", "bool", ()))
        size = options.replay_capacity, self.steps, self._joined
        if packing := Packing.of(env):
            return PackedSequenceRing(*size, packing, rows, *about)
        return SequenceRing(*size, rows, *about)

    def __len__(self) -> int:
        return self.steps * len(self.ring)

    def unfit(self, rollout: Rollout) -> str:
        """Why a rollout cannot be kept; empty if it can."""
        if rollout.num_steps == self.steps:
            return super().unfit(rollout)
        return f"num_steps is {rollout.num_steps}, expected sequence_length = {self.steps}"

    def add(self, rollout: Rollout) -> None:
        """Store the sequence of each environment."""
        super().add(packed(rollout, self.packing))

    def _store(self, rollout: Rollout, fields: Mapping[str, NDArray[Any]], last: NDArray[np.intp]) -> None:
        assert rollout.obs is not None
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        assert rollout.memory is not None
        begins = np.zeros_like(rollout.terminated)
        begins[1:] = rollout.terminated[:-1] | rollout.truncated[:-1]
        seen = {"obs": rollout.obs[:-1], "next_obs": next_observations(rollout, last)}
        steps = {**fields, **seen, "begins": begins, "last": last}
        rows = {name: array.swapaxes(0, 1) for name, array in steps.items()}
        self.ring.add(rollout, {**rows, "memory": rollout.memory})

    def sample(self, batch_size: int) -> Batch:
        """``batch_size // T`` sequences, at least one; valid until the next call."""
        batch = super().sample(max(1, batch_size // self.steps))
        return batch if batch.weight is None else replace(batch, weight=batch.weight[None])

    def _batch(self, rows: Mapping[str, torch.Tensor]) -> Batch:
        whole = {name: rows[name][None] for name in ("memory", "follows", "earlier") if name in rows}
        sequences = {name: value.transpose(0, 1) for name, value in rows.items() if name not in whole}
        return super()._batch({**sequences, **whole})


class PrioritizedSequences(SequenceReplay, PrioritizedReplay):
    """Sequences drawn by priority; their errors are one for each sequence."""


def replay_of(
    fields: Sequence[str],
    env: EnvironmentSpec,
    options: Any,
    device: torch.device | str,
    seed: int,
) -> Replay | ObservationReplay:
    """The replay of a learner that asks for these rollout arrays: observations, or whole transitions, which
    are prioritized if the options ask for it; sequences of them where the policy has a memory.
    """
    if "action" not in fields:
        return ObservationReplay(env, options, device, seed)
    kinds: tuple[type[Replay], type[Replay]] = (Replay, PrioritizedReplay)
    if "memory" in fields:
        kinds = (SequenceReplay, PrioritizedSequences)
    return kinds[options.prioritized](env, options, device, seed, further_fields(fields))
