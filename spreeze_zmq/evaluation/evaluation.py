"""Plays whole deterministic episodes with a policy, and scores it."""

from __future__ import annotations

import itertools
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.base.errors import EnvironmentFailure
from spreeze_zmq.envs.infos import scalars
from spreeze_zmq.policy import FrameStack, Policy, played, without_noise
from spreeze_zmq.policy.actor import Actions

if TYPE_CHECKING:
    from spreeze_zmq.envs.batched import BatchedEnv

#: Most scalars of an environment's info that an evaluation keeps.
MAX_INFO = 64
#: 0.975 quantiles of Student's t with 1 to 30 degrees of freedom.
_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


#: Failures for each episode after which a round without a time limit gives up.
MOST_FAILED = 20
#: Returns that differ by this share are the same: the order of a batch's sums rounds them.
ROUNDING = 1e-6

#: The actions of a policy in a batch of environments, for :func:`spreeze_zmq.policy.played`.
Act = Callable[[FrameStack], Actions]


@dataclass(frozen=True)
class Score:
    """The episodes of one evaluation.

    Attributes:
        returns: ``[E]`` float64, undiscounted.
        lengths: ``[E]`` int64, steps.
        starts: ``[E]`` int64, a checksum of each first observation.
        cut: ``[E]`` bool: ended by the evaluation's own limit of steps or time, not by the environment.
        timed_out: whether the time limit cut some episodes, so that the returns are not comparable.
        info: mean of each scalar in the info of the last step over the episodes with it, flags as 0 and 1.
        info_counts: how many these are; of a name that is not there, all.
        num_failed: episodes that ended with a failure of their environment, and were played again.
    """

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    cut: NDArray[np.bool_]
    timed_out: bool = False
    info: Mapping[str, float] = field(default_factory=dict)
    info_counts: Mapping[str, int] = field(default_factory=dict)
    num_failed: int = 0

    @property
    def compares(self) -> bool:
        """Whether its mean can stand beside others: time has cut no episode, and at most as many failed as
        were whole, which may be the easy ones.
        """
        return not self.timed_out and not self.has_mostly_failed

    @property
    def has_mostly_failed(self) -> bool:
        """Whether more episodes failed than were whole."""
        return self.num_failed > len(self.returns)

    @property
    def mean_return(self) -> float:
        return float(self.returns.mean())

    @property
    def is_one(self) -> bool:
        """Whether all episodes were the same one: they began alike, and have one length and one return."""
        if self.timed_out or np.ptp(self.starts) or np.ptp(self.lengths):
            return False
        return spread(self.returns) == 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean return by Student's t; None for a single episode, for one that was
        played again and again, and where time has cut some.
        """
        return None if self.is_one or self.timed_out else t_interval(self.returns)

    def followed_by(self, later: Score) -> Score:
        """The score of these episodes and later ones of the same policy, with the names that came first."""
        both = (self, later)
        info, counts = {}, {}
        for name in first_names([self.info, later.info]):
            having = [one for one in both if name in one.info]
            nums = [one.info_counts.get(name, len(one.returns)) for one in having]
            counts[name] = sum(nums)
            info[name] = float(np.average([one.info[name] for one in having], weights=nums))
        return _joined(both, self.timed_out or later.timed_out, info, counts)

    def fields(self) -> dict[str, Any]:
        """The part of an ``evaluation`` message that describes the episodes."""
        interval = self.interval
        return {
            "mean_return": self.mean_return,
            "std_return": spread(self.returns),
            **({} if interval is None else {"interval_low": interval[0], "interval_high": interval[1]}),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "mean_length": float(self.lengths.mean()),
            "min_length": int(self.lengths.min()),
            "max_length": int(self.lengths.max()),
            "num_episodes": len(self.returns),
            "num_truncated": int(self.cut.sum()),
            "timed_out": self.timed_out,
            **({"num_failed": self.num_failed} if self.num_failed else {}),
            "info": dict(self.info),
        }


def _joined(
    scores: Sequence[Score], timed_out: bool, info: Mapping[str, float], info_counts: Mapping[str, int]
) -> Score:
    """The score of all their episodes."""
    names = ("returns", "lengths", "starts", "cut")
    arrays = {name: np.concatenate([getattr(one, name) for one in scores]) for name in names}
    num_failed = sum(one.num_failed for one in scores)
    return Score(**arrays, timed_out=timed_out, info=info, info_counts=info_counts, num_failed=num_failed)


def as_text(value: float) -> str:
    """A return, or how far some spread: with two digits after the point, below 0.1 with two that count."""
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def spread(returns: NDArray[np.float64]) -> float:
    """The standard deviation of ``[E]`` returns; 0 where all that differs is the rounding of their sums."""
    alike = np.ptp(returns) <= ROUNDING * max(1.0, abs(float(returns.mean())))
    return 0.0 if alike else float(returns.std())


def with_spread(returns: NDArray[np.float64]) -> str:
    """``-142.70 +- 77.50``: mean and spread of ``[E]`` returns; of one, which has no spread, itself."""
    beside = f" +- {as_text(spread(returns))}" if len(returns) > 1 else ""
    return as_text(float(returns.mean())) + beside


def of_episodes(number: int) -> str:
    """``1 episode`` or ``7 episodes``."""
    return f"{number} episode{'s' * (number != 1)}"


def t_interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """The 95 % interval of the mean of ``[E]`` values by Student's t; None for fewer than two."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    t = _T_975[freedom - 1] if freedom <= len(_T_975) else 1.96 + 2.37 / freedom
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def play(
    envs: BatchedEnv,
    policy: Policy,
    seed: int,
    num_episodes: int | None = None,
    *,
    step_cap: int | None = None,
    until_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    on_step: Callable[[], None] = lambda: None,
    act: Act | None = None,
) -> Score:
    """Play whole episodes, by default with the mode of the policy's distribution, in rounds of one per
    environment.

    Args:
        envs: a vector environment from :func:`spreeze_zmq.envs.make`, with same-step autoreset.
        policy: acts.
        seed: episode ``i`` begins with ``seed + i``, whatever the number of environments.
        num_episodes: rounded up to whole rounds; by default one round.
        step_cap: the time limit that the evaluation has set for the environments, if any: episodes that it
            truncates count as cut.
        until_s: value of ``clock`` at which the present round is cut. Only a first round counts although it
            was cut.
        clock: in seconds.
        on_step: called after every step; an exception that it raises abandons the evaluation.
        act: how the policy acts; by default without noise.

    Raises:
        EnvironmentFailure: there is no time limit, and nearly all episodes end with a failure.
    """
    rounds: list[Score] = []
    infos: list[dict[str, float]] = []
    for first in range(0, num_episodes or envs.num_envs, envs.num_envs):
        score, last_infos = _play_round(
            envs,
            policy,
            act or without_noise(policy),
            seed + first,
            step_cap,
            lambda: clock() >= until_s,
            on_step,
            MOST_FAILED * envs.num_envs if until_s == math.inf else math.inf,
        )
        if not score.timed_out or not rounds:
            rounds.append(score)
            infos += last_infos
        if score.timed_out:
            break
    return _joined(rounds, rounds[-1].timed_out, *_means(infos))


def _play_round(
    envs: BatchedEnv,
    policy: Policy,
    act: Act,
    seed: int,
    step_cap: int | None,
    is_late: Callable[[], bool],
    on_step: Callable[[], None],
    most_failed: float,
) -> tuple[Score, list[dict[str, float]]]:
    """Play one episode in each environment; returns their score and the info of each one's last step."""
    num_envs: int = envs.num_envs
    returns, lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    cut, playing, num_failed = np.zeros(num_envs, np.bool_), np.ones(num_envs, np.bool_), 0
    infos: list[dict[str, float]] = [{} for _ in range(num_envs)]
    frames = policy.frame_stack()
    obs, info = envs.reset(seed=seed)
    frames.begin(obs, info.get("action_mask"))
    starts, timed_out = np.array([zlib.crc32(row.tobytes()) for row in obs]), False
    for step in played(envs, frames, act):
        returns += np.where(playing, step.reward, 0.0)
        lengths += playing
        again = playing & step.failed  # an episode that ended with a failure of its environment
        returns[again], lengths[again] = 0.0, 0
        num_failed += int(again.sum())
        if num_failed > most_failed:
            raise EnvironmentFailure(_hopeless(envs, num_failed, int((~playing).sum())))
        for row in again.nonzero()[0].tolist():
            starts[row] = zlib.crc32(step.obs[row].tobytes())
        ended = playing & step.ended & ~step.failed
        if ended.any():
            if step_cap is not None:
                cut |= ended & step.truncated & ~step.terminated & (lengths >= step_cap)
            for row in ended.nonzero()[0].tolist():
                infos[row] = scalars(step.info.get("final_info", {}), row)
            playing &= ~ended
            envs.step_only(playing)
        on_step()
        if not playing.any():
            break
        if is_late():
            cut, timed_out = cut | playing, True
            break
    return Score(returns, lengths, starts, cut, timed_out, num_failed=num_failed), infos


def _hopeless(envs: BatchedEnv, num_failed: int, num_whole: int) -> str:
    return (
        f"{envs.env_id}: {num_failed} episodes ended with a failure of their environment, as named above, "
        f"and {num_whole} of {envs.num_envs} without one: the policy gets no score"
    )


def first_names(infos: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of them all in order, ``MAX_INFO`` at most: of episodes that have names of their own, such as
    those of vehicles, there are ever more.
    """
    return list(itertools.islice(dict.fromkeys(name for info in infos for name in info), MAX_INFO))


def _means(rows: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, int]]:
    """The mean of each name over the rows that have it, and how many these are."""
    having = {name: [row[name] for row in rows if name in row] for name in first_names(rows)}
    means = {name: float(np.mean(values)) for name, values in having.items()}
    return means, {name: len(values) for name, values in having.items()}
