"""Episodes: which transitions belong together, joined from the rollouts of each sampler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq.base.rollout import Rollout

if TYPE_CHECKING:
    from spreeze_zmq.replay.hindsight import Goals

#: An episode that goes on for longer is handed on in parts.
MOST_STEPS = 10_000
#: The action masks of rollouts, of which an episode has one more than steps.
MASK = "action_mask"
#: In place of the incarnation of a sampler that goes on in another process; those count from 1.
RUN_BEFORE = 0


class LastRollouts:
    """What the next rollout of each sampler shares with its last one: indices ``[N, ...]``."""

    def __init__(self) -> None:
        #: Sampler -> incarnation, position in the stream, and what is shared.
        self._kept: dict[str, tuple[int, int, NDArray[np.intp]]] = {}

    def before(self, rollout: Rollout) -> NDArray[np.intp] | None:
        """What was kept of the rollout before this one; None if that was not the last of its sampler."""
        if rollout.sampler not in self._kept:
            return None
        incarnation, produced, shared = self._kept[rollout.sampler]
        before = rollout.produced - rollout.num_transitions
        follows = (incarnation, produced) in ((rollout.incarnation, before), (RUN_BEFORE, before))
        return shared if follows and len(shared) == rollout.num_envs else None

    def keep(self, rollout: Rollout, shared: NDArray[np.intp]) -> None:
        """Note the last rollout of a sampler."""
        self._kept[rollout.sampler] = (rollout.incarnation, rollout.produced, shared)

    def state(self) -> dict[str, torch.Tensor]:
        """Sampler -> what is shared."""
        return {sampler: torch.from_numpy(shared) for sampler, (_, _, shared) in self._kept.items()}

    def go_on(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from :meth:`state` with the first rollouts of other processes."""
        self._kept = {sampler: (RUN_BEFORE, 0, shared.numpy()) for sampler, shared in state.items()}


@dataclass(frozen=True)
class Episode:
    """``L`` steps of one environment, from the first that was received to the end of the episode.

    Attributes:
        obs: ``[L + 1, *obs_shape]`` as the environment gives it, flattened; the last one follows the last
            step.
        action: ``[L, *action_shape]`` in the environment's own units.
        reward: ``[L]`` float32.
        terminated: whether it ended in a state of value zero, and was not cut.
        more: ``[L, ...]`` each: further arrays of the rollouts that the algorithm asks for, by name; action
            masks ``[L + 1, A]``.
        goals: where goals are and what the environment pays for them; None where observations are no goal
            Dict.
        rng: the only source of random numbers to use, so that a run in lock-step repeats itself.
        drawn: gives ``[count, *obs_shape]`` observations of any transitions in the replay.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[np.float32]
    terminated: bool
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    goals: Goals | None = None
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    drawn: Callable[[int], NDArray[Any]] = lambda count: np.empty((count, 0))

    def __len__(self) -> int:
        return len(self.reward)

    def without_failed_step(self) -> Episode:
        """Without a last step that was cut and stayed where it was, as one does in which the environment
        failed: with that place for its goal it would be a success. One that only changed nothing goes too.
        """
        if self.terminated or not len(self) or not np.array_equal(self.obs[-1], self.obs[-2]):
            return self
        arrays = {name: getattr(self, name)[:-1] for name in ("obs", "action", "reward")}
        return replace(self, **arrays, more={name: array[:-1] for name, array in self.more.items()})


@dataclass(frozen=True)
class Transitions:
    """``M`` transitions of one episode, each with up to ``n_step`` rewards that are summed for it.

    Attributes:
        obs: ``[M, *obs_shape]``.
        action: ``[M, *action_shape]``.
        next_obs: ``[M, *obs_shape]``, after the last of these rewards.
        reward: ``[M, n_step]`` float32, each by itself.
        terminated: ``[M, n_step]``: whether the episode ends with a state of value zero after each; later
            rewards of the row do not count.
        step: ``[M, n_step]``: the number of each reward's step in the episode, whose last one is repeated.
        counts: ``[M, n_step]``: whether there is such a step; rewards beyond the episode's end do not count.
        more: ``[M, ...]`` each: further arrays by name, those of the first step; action masks are those of
            ``obs``, and of ``next_obs`` in ``next_action_mask``.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    next_obs: NDArray[Any]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    step: NDArray[np.intp]
    counts: NDArray[np.bool_]
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.obs)

    @classmethod
    def of(cls, episode: Episode, n_step: int) -> Transitions:
        """All transitions of an episode in order, ``M = L``."""
        length = len(episode)
        wanted = np.arange(length)[:, None] + np.arange(n_step)
        step, counts = np.minimum(wanted, length - 1), wanted < length
        terminated = counts & (step == length - 1) & episode.terminated
        more = {name: array[:length] for name, array in episode.more.items()}
        if MASK in more:
            more[f"next_{MASK}"] = episode.more[MASK][step[:, -1] + 1]
        return cls(
            obs=episode.obs[:-1],
            action=episode.action,
            next_obs=episode.obs[step[:, -1] + 1],
            reward=episode.reward[step],
            terminated=terminated,
            step=step,
            counts=counts,
            more=more,
        )

    def rows(self, index: NDArray[Any]) -> Transitions:
        """Some of the transitions, by their numbers or a mask; a number may be there many times."""
        arrays = {name: value[index] for name, value in vars(self).items() if name != "more"}
        return Transitions(**arrays, more={name: value[index] for name, value in self.more.items()})

    def _replace(self, **fields: Any) -> Transitions:
        """A copy with other values of some fields, as of a ``NamedTuple``."""
        return replace(self, **fields)

    def sizes(self, gamma: float) -> NDArray[np.float64]:
        """``[K]``: the size of the discounted return so far after each reward other than 0; it begins again
        after a termination, and where a row is not of a later step than the row before.
        """
        running, last, found = 0.0, -1, list[float]()
        columns = self.step[:, 0], self.reward[:, 0], self.terminated[:, 0]
        for step, reward, over in zip(*(column.tolist() for column in columns), strict=True):
            running = reward + (gamma * running if step > last else 0.0)
            if reward:
                found.append(abs(running))
            last = step
            running *= not over
        return np.array(found, np.float64)

    def summed(self, gamma: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """``[M]`` each: the discounted sum of the rewards up to the first that terminates, and the discount
        of what follows, 0 after termination (as ``n_step_returns``).
        """
        over = np.cumsum(self.terminated & self.counts, 1) > 0
        taken = self.counts.copy()
        taken[:, 1:] &= ~over[:, :-1]
        powers = np.power(np.float64(gamma), np.arange(taken.shape[1] + 1)).astype(np.float32)
        returns = (np.where(taken, self.reward, np.float32(0.0)) * powers[:-1]).sum(1, dtype=np.float32)
        return returns, np.where(over[:, -1], np.float32(0.0), powers[taken.sum(1)])


class _Stream:
    """The rollouts of one sampler since the oldest episode that goes on.

    Steps are numbered from the stream's first one.
    """

    def __init__(self, rollout: Rollout) -> None:
        self.incarnation, self.num_envs = rollout.incarnation, rollout.num_envs
        self.produced = rollout.produced - rollout.num_transitions
        self.first = self.end = 0
        self.pieces: deque[Rollout] = deque()
        self.begins = np.zeros(rollout.num_envs, np.intp)

    def continues_with(self, rollout: Rollout) -> bool:
        """Whether nothing is missing between the last rollout and this one."""
        own = self.produced, self.num_envs
        follows = own == (rollout.produced - rollout.num_transitions, rollout.num_envs)
        return follows and self.incarnation in (rollout.incarnation, RUN_BEFORE)

    def state(self, names: Sequence[str]) -> dict[str, Any]:
        """What its episodes need that go on."""
        pieces = [{name: np.array(getattr(piece, name)) for name in names} for piece in self.pieces]
        return {"begins": self.begins - self.first, "pieces": pieces}

    @classmethod
    def restored(cls, sampler: str, state: Mapping[str, Any]) -> _Stream:
        """Continue from :meth:`state` with the first rollout of another process."""
        pieces, begins = state["pieces"], state["begins"]
        shapes = [piece["reward"].shape for piece in pieces]
        rollouts = [
            Rollout(sampler, RUN_BEFORE, 0, 0, 0, *shape, **piece)
            for shape, piece in zip(shapes, pieces, strict=True)
        ]
        stream = cls(Rollout(sampler, RUN_BEFORE, 0, 0, 0, 0, len(begins)))
        for rollout in rollouts:
            stream.append(rollout)
        stream.begins = np.array(begins, np.intp)
        return stream

    def append(self, rollout: Rollout) -> None:
        self.pieces.append(rollout)
        self.produced, self.end = rollout.produced, self.end + rollout.num_steps

    def cut(
        self, env: int, stop: int, final: Mapping[str, NDArray[Any]], terminated: bool, more: Sequence[str]
    ) -> Episode:
        """The episode of an environment up to step ``stop``, which the rows ``final`` by name followed."""
        begin, start, names = self.begins[env], self.first, ("obs", "action", "reward", *more)
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
        for piece in self.pieces:
            span = slice(max(0, begin - start), min(piece.num_steps, stop - start))
            if span.start < span.stop:
                for name, found in parts.items():
                    found.append(getattr(piece, name)[span, env])
            start += piece.num_steps
        self.begins[env] = stop
        for name, row in final.items():
            parts[name].append(row[None])
        obs, action, reward, *others = (np.concatenate(parts[name]) for name in names)
        return Episode(obs, action, reward, terminated, dict(zip(more, others, strict=True)))

    def forget(self) -> None:
        """Drop the rollouts that no episode needs that goes on."""
        oldest = int(self.begins.min())
        while self.pieces and self.first + self.pieces[0].num_steps <= oldest:
            self.first += self.pieces.popleft().num_steps


class EpisodeBuilder:
    """Joins rollouts to episodes. Where rollouts are lost or a sampler has been restarted, its episodes begin
    with the next step that is received.

    Args:
        more: further arrays of the rollouts that episodes keep.
    """

    def __init__(self, more: Sequence[str] = ()) -> None:
        self._more = tuple(more)
        self._streams: dict[str, _Stream] = {}

    def state(self) -> dict[str, Any]:
        """Sampler -> arrays of the episodes that go on."""
        names = ("obs", "action", "reward", *self._more)
        return {sampler: stream.state(names) for sampler, stream in self._streams.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`, with samplers that go on in other processes."""
        self._streams = {sampler: _Stream.restored(sampler, each) for sampler, each in state.items()}

    def ended(self, rollout: Rollout) -> Iterator[Episode]:
        """The episodes that end in a rollout, and parts of very long ones."""
        assert rollout.obs is not None
        assert rollout.terminated is not None
        assert rollout.final_obs is not None
        stream = self._streams.get(rollout.sampler)
        if stream is None or not stream.continues_with(rollout):
            stream = self._streams[rollout.sampler] = _Stream(rollout)
        base = stream.end
        stream.append(rollout)
        finals = rollout.arrays(("final_obs", "final_action_mask" if MASK in self._more else "final_obs"))
        for row, (t, env) in enumerate(zip(*rollout.ended_at, strict=True)):
            final = {name.removeprefix("final_"): array[row] for name, array in finals.items()}
            yield stream.cut(int(env), base + int(t) + 1, final, bool(rollout.terminated[t, env]), self._more)
        for env in np.flatnonzero(stream.end - stream.begins >= MOST_STEPS):
            last = {name: getattr(rollout, name)[-1, env] for name in ("obs", *{MASK} & {*self._more})}
            yield stream.cut(int(env), stream.end, last, False, self._more)
        stream.forget()
