"""The replay: what a learner keeps, on its own device, of the rollouts that arrive."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from spreeze_zmq.errors import CheckpointError, InputError, WireError
from spreeze_zmq.rollout import Rollout

#: Share of the free memory that a replay may claim.
MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Batch:
    """Transitions drawn from a replay; views of its buffers, valid until its next ``sample``.

    Attributes:
        obs: ``[B, *obs_shape]`` in the dtype of the environment.
        action: ``[B, *action_shape]`` in the environment's own units.
        reward: ``[B]`` float32, the discounted sum of up to ``n`` rewards.
        discount: ``[B]`` float32, gamma to the number of rewards summed; 0 where the episode terminated.
        next_obs: ``[B, *obs_shape]``, the observation to bootstrap from.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_obs: torch.Tensor


@dataclass(frozen=True)
class Column:
    """One field of a transition: its name, NumPy dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Elements of one transition."""
        return math.prod(self.shape)


class ReplaySizes(Protocol):
    """The options of an algorithm that say what a replay holds."""

    @property
    def replay_capacity(self) -> int:
        """Transitions."""

    @property
    def gamma(self) -> float:
        """Discount of one step."""

    @property
    def n_step(self) -> int:
        """Rewards summed at most."""


class Spaces(Protocol):
    """The environment's shapes, as ``spreeze_zmq.envs.EnvironmentSpec`` has them."""

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Of one observation."""

    @property
    def obs_dtype(self) -> str:
        """``"float32"`` or ``"uint8"``."""

    @property
    def action_kind(self) -> str:
        """``"box"`` or ``"discrete"``."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action."""


class Ring:
    """A preallocated table of transitions whose oldest rows are overwritten.

    Columns of one dtype share a tensor ``[capacity, width]``, so that a sample is one gather for each dtype:
    one in all where observations and actions are float32.

    Args:
        capacity: rows.
        columns: what a row holds.
        device: where the table lies.
        seed: of the sampling.

    Raises:
        InputError: the table does not fit in the memory that is free.
    """

    def __init__(self, capacity: int, columns: Sequence[Column], device: torch.device | str, seed: int):
        self.capacity = capacity
        self.columns = tuple(columns)
        self.device = torch.device(device)
        self.num_added = 0
        self._places: dict[str, tuple[str, slice]] = {}
        widths: dict[str, int] = {}
        for column in self.columns:
            start = widths.get(column.dtype, 0)
            self._places[column.name] = (column.dtype, slice(start, start + column.width))
            widths[column.dtype] = start + column.width
        self._widths = widths
        self._check_memory()
        self._tables = {
            dtype: torch.empty(capacity, width, dtype=getattr(torch, dtype), device=self.device)
            for dtype, width in widths.items()
        }
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._index = torch.empty(0, dtype=torch.int64, device=self.device)
        self._rows: dict[str, torch.Tensor] = {}
        self._batch: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return min(self.num_added, self.capacity)

    @property
    def memory_bytes(self) -> int:
        """Size of the full table."""
        return self.capacity * sum(np.dtype(dtype).itemsize * width for dtype, width in self._widths.items())

    def _check_memory(self) -> None:
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
        else:
            free = psutil.virtual_memory().available
        if self.memory_bytes > MEMORY_SHARE * free:
            row = self.memory_bytes // self.capacity
            raise InputError(
                f"a replay of {self.capacity:,} transitions of {row:,} bytes takes "
                f"{self.memory_bytes / 1e9:.1f} GB, {self.device} has {free / 1e9:.1f} GB free: "
                f"lower algorithm.replay_capacity to at most {int(MEMORY_SHARE * free) // row:,}"
            )

    def write(self, fields: Mapping[str, NDArray[Any]]) -> None:
        """Append ``M`` rows, ``[M, *shape]`` of each column, over the oldest."""
        count = len(next(iter(fields.values())))
        kept = min(count, self.capacity)  # of more rows than there is room for, the last remain
        begin = (self.num_added + count - kept) % self.capacity
        before_end = min(kept, self.capacity - begin)
        for dtype, width in self._widths.items():
            rows = np.empty((kept, width), dtype)
            for name, (other, place) in self._places.items():
                if other == dtype:
                    rows[:, place] = fields[name][count - kept :].reshape(kept, -1)
            source, table = torch.from_numpy(rows), self._tables[dtype]
            table[begin : begin + before_end] = source[:before_end]
            table[: kept - before_end] = source[before_end:]
        self.num_added += count

    def gather(self, batch_size: int) -> dict[str, torch.Tensor]:
        """``batch_size`` rows drawn uniformly with replacement; the tensors hold until the next call."""
        assert self.num_added > 0, "an empty replay cannot be sampled"
        if self._index.shape[0] != batch_size:
            self._prepare(batch_size)
        torch.randint(len(self), (batch_size,), generator=self._generator, out=self._index)
        for dtype, table in self._tables.items():
            torch.index_select(table, 0, self._index, out=self._rows[dtype])
        return self._batch

    def _prepare(self, batch_size: int) -> None:
        self._index = torch.empty(batch_size, dtype=torch.int64, device=self.device)
        self._rows = {
            dtype: table.new_empty(batch_size, table.shape[1]) for dtype, table in self._tables.items()
        }
        for column in self.columns:
            dtype, place = self._places[column.name]
            self._batch[column.name] = self._rows[dtype][:, place].view(batch_size, *column.shape)

    def random_state(self) -> torch.Tensor:
        """The state of the sampling, uint8."""
        return self._generator.get_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Draw the same batches again as after ``random_state()``."""
        self._generator.set_state(state.cpu())

    def save(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Write ``folder``: a mappable npy for each dtype, the sampling's state, and ``replay.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        for dtype, table in self._tables.items():
            np.save(folder / f"{dtype}.npy", table[: len(self)].cpu().numpy(), allow_pickle=False)
        np.save(folder / "generator.npy", self.random_state().numpy(), allow_pickle=False)
        about = {**settings, **self._layout(), "num_added": self.num_added}
        (folder / "replay.json").write_text(json.dumps(about, indent=1))

    def load(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Go on from ``save``.

        Raises:
            CheckpointError: a file is missing or broken, or the saved replay was laid out otherwise.
        """
        try:
            about = json.loads((folder / "replay.json").read_text())
            tables = {
                dtype: np.load(folder / f"{dtype}.npy", mmap_mode="r", allow_pickle=False)
                for dtype in self._tables
            }
            state = np.load(folder / "generator.npy", allow_pickle=False)
            num_added = int(about["num_added"])
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"the replay in {folder} cannot be read: {error}") from error
        for name, expected in {**settings, **self._layout()}.items():
            if about.get(name) != expected:
                raise CheckpointError(
                    f"the replay in {folder} was saved with {name} = {about.get(name)}, this run has "
                    f"{expected}: resume with the same options, or without the replay"
                )
        size = min(num_added, self.capacity)
        for dtype, saved in tables.items():
            if saved.shape != (size, self._widths[dtype]) or saved.dtype != dtype:
                raise CheckpointError(
                    f"{folder / dtype}.npy holds {saved.dtype} {saved.shape}, expected {size} rows"
                )
            self._tables[dtype][:size] = torch.from_numpy(np.array(saved))
        self.set_random_state(torch.from_numpy(state))
        self.num_added = num_added

    def _layout(self) -> dict[str, Any]:
        """What must agree between a saved replay and this one, in JSON's own types."""
        columns = [[column.name, column.dtype, list(column.shape)] for column in self.columns]
        return {"capacity": self.capacity, "columns": columns}


def n_step_returns(
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    n_step: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """Sums of up to ``n_step`` discounted rewards that cross neither an episode's end nor the rollout's.

    All arguments and results are ``[T, N]``. Returns the sums ``R_t = sum over k < m of gamma^k r_(t+k)``;
    the discounts ``gamma^m``, 0 after termination (Sutton and Barto 2018, equation 12.1 cut short: ``m`` is
    the number of steps there were); and the time ``t + m - 1`` of the last reward in each sum.
    """
    num_steps = len(reward)
    ended = terminated | truncated
    returns = np.array(reward, np.float32)
    last = np.broadcast_to(np.arange(num_steps)[:, None], reward.shape).copy()
    running = ~ended
    for k in range(1, min(n_step, num_steps)):
        running = running[:-1]  # the row whose k-th successor lies beyond the rollout drops out
        returns[:-k] += np.where(running, np.float32(gamma**k) * reward[k:], np.float32(0.0))
        last[:-k] += running
        running = running & ~ended[k:]
    steps = last - np.arange(num_steps)[:, None] + 1
    discount = np.power(np.float64(gamma), steps).astype(np.float32)
    discount[np.take_along_axis(terminated, last, 0)] = 0.0
    return returns, discount, last


def next_observations(rollout: Rollout, ended: NDArray[np.bool_], last: NDArray[np.intp]) -> NDArray[Any]:
    """``[T, N, *obs_shape]``: what followed step ``last`` of each, an episode's true end included.

    Raises:
        WireError: ``final_obs``, where the rows of final observations are not those of the ended episodes.
    """
    assert rollout.obs is not None
    following = np.array(rollout.obs[1:])
    places = np.argwhere(ended)
    index, final = rollout.final_index, rollout.final_obs
    if index is None or final is None or len(final) != len(places) or not np.array_equal(places, index):
        raise WireError(
            "final_obs",
            f"rollout {rollout.sequence} of {rollout.sampler} ends {len(places)} episodes and its final "
            "observations are not theirs, in the order of time and then environment",
        )
    following[places[:, 0], places[:, 1]] = final
    return following[last, np.arange(following.shape[1])]


class Replay:
    """Whole transitions with n-step returns, for a critic.

    Args:
        capacity: transitions.
        obs_shape: of one observation.
        obs_dtype: float32 or uint8; kept as it is.
        action_shape: of one action.
        action_dtype: float32 or int64.
        gamma: discount of one step.
        n_step: rewards summed at most.
        device: where the transitions lie.
        seed: of the sampling.

    Raises:
        InputError: it does not fit in the memory that is free.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: Sequence[int],
        obs_dtype: str,
        action_shape: Sequence[int],
        action_dtype: str,
        gamma: float,
        n_step: int,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ):
        self.gamma = gamma
        self.n_step = n_step
        columns = (
            Column("obs", str(obs_dtype), tuple(obs_shape)),
            Column("action", str(action_dtype), tuple(action_shape)),
            Column("next_obs", str(obs_dtype), tuple(obs_shape)),
            Column("reward", "float32", ()),
            Column("discount", "float32", ()),
        )
        self.ring = Ring(capacity, columns, device, seed)

    @classmethod
    def for_environment(
        cls, env: Spaces, options: ReplaySizes, device: torch.device | str, seed: int
    ) -> Self:
        """The replay that an algorithm's options ask for in this environment."""
        action_dtype = "int64" if env.action_kind == "discrete" else "float32"
        return cls(
            options.replay_capacity,
            env.obs_shape,
            env.obs_dtype,
            env.action_shape,
            action_dtype,
            options.gamma,
            options.n_step,
            device,
            seed,
        )

    def __len__(self) -> int:
        return len(self.ring)

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` transitions of a rollout. Raises WireError ``final_obs``."""
        assert rollout.obs is not None
        assert rollout.action is not None
        assert rollout.reward is not None
        assert rollout.terminated is not None
        assert rollout.truncated is not None
        returns, discount, last = n_step_returns(
            rollout.reward, rollout.terminated, rollout.truncated, self.gamma, self.n_step
        )
        fields: dict[str, NDArray[Any]] = {
            "obs": rollout.obs[:-1],
            "action": rollout.action,
            "next_obs": next_observations(rollout, rollout.terminated | rollout.truncated, last),
            "reward": returns,
            "discount": discount,
        }
        self.ring.write({name: _rows(field) for name, field in fields.items()})

    def sample(self, batch_size: int) -> Batch:
        """Uniform with replacement; valid until the next call."""
        return Batch(**self.ring.gather(batch_size))

    def random_state(self) -> torch.Tensor:
        """The state of the sampling, uint8."""
        return self.ring.random_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Draw the same batches again as after ``random_state()``."""
        self.ring.set_random_state(state)

    def save(self, folder: Path | str) -> None:
        """Write everything under ``folder``, npy without pickle."""
        self.ring.save(Path(folder), {"gamma": self.gamma, "n_step": self.n_step})

    def load(self, folder: Path | str) -> None:
        """Go on from ``save``. Raises CheckpointError."""
        self.ring.load(Path(folder), {"gamma": self.gamma, "n_step": self.n_step})


class ObservationReplay:
    """Observations alone, for an actor; arguments as for ``Replay``."""

    def __init__(
        self,
        capacity: int,
        obs_shape: Sequence[int],
        obs_dtype: str,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ):
        self.ring = Ring(capacity, (Column("obs", str(obs_dtype), tuple(obs_shape)),), device, seed)

    @classmethod
    def for_environment(
        cls, env: Spaces, options: ReplaySizes, device: torch.device | str, seed: int
    ) -> Self:
        """The replay that an algorithm's options ask for in this environment."""
        return cls(options.replay_capacity, env.obs_shape, env.obs_dtype, device, seed)

    def __len__(self) -> int:
        return len(self.ring)

    def add(self, rollout: Rollout) -> None:
        """Store the ``T x N`` observations that were acted on."""
        assert rollout.obs is not None
        self.ring.write({"obs": _rows(rollout.obs[:-1])})

    def sample(self, batch_size: int) -> torch.Tensor:
        """``[B, *obs_shape]``, uniform with replacement; valid until the next call."""
        return self.ring.gather(batch_size)["obs"]

    def random_state(self) -> torch.Tensor:
        """The state of the sampling, uint8."""
        return self.ring.random_state()

    def set_random_state(self, state: torch.Tensor) -> None:
        """Draw the same batches again as after ``random_state()``."""
        self.ring.set_random_state(state)

    def save(self, folder: Path | str) -> None:
        """Write everything under ``folder``, npy without pickle."""
        self.ring.save(Path(folder), {})

    def load(self, folder: Path | str) -> None:
        """Go on from ``save``. Raises CheckpointError."""
        self.ring.load(Path(folder), {})


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """``[T, N, ...]`` to ``[T * N, ...]``."""
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
