"""Which policy of a run is the best: the candidates, as the evaluator keeps the best one in the run's policy
file, and the rule by which another one takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.evaluation.evaluation import Score, as_text, first_names, t_interval
from spreeze_zmq.policy import Policy, read_file
from spreeze_zmq.policy.file import MOST_HEADER, parsed, parsed_list

Returns = NDArray[np.float64]

#: A race is not decided by fewer episodes of each, unless it may have no more.
LEAST = 3


@dataclass
class Contestant:
    """A policy and its episodes.

    Attributes:
        policy: the policy.
        seed: episode ``i`` began with a reset with ``seed + i``.
        score: its episodes; None before the first.
        wall_s: seconds that they took.
        played: how many of them this process has played, and the seconds that these took: those of a file are
            another process's, perhaps of a faster machine.
        fresh: whether some were played after the policy had been chosen.
        final: whether they were played at the end of a run, and chose nothing.
        num_unread: episodes of a file that does not hold their returns, which must be played again.
    """

    policy: Policy
    seed: int
    score: Score | None = None
    wall_s: float = 0.0
    played: tuple[int, float] = (0, 0.0)
    fresh: bool = True
    final: bool = False
    num_unread: int = 0

    @property
    def num_episodes(self) -> int:
        return len(self.returns)

    @property
    def returns(self) -> NDArray[np.float64]:
        """``[E]``, of all its episodes."""
        return np.zeros(0) if self.score is None else self.score.returns

    @property
    def said(self) -> str:
        """Its score in words."""
        cut = ", some of them cut by time" if self.score is not None and self.score.timed_out else ""
        return f"{as_text(self.mean_return)} in {self.num_episodes} episodes{cut}"

    @property
    def next_seed(self) -> int:
        return self.seed + self.num_episodes

    @property
    def compares(self) -> bool:
        """Whether its mean return can stand beside others, see ``Score``."""
        return self.score is None or self.score.compares

    @property
    def mean_return(self) -> float:
        """Over all its episodes; minus infinity before the first."""
        return -np.inf if self.score is None else self.score.mean_return

    def take(self, score: Score, wall_s: float) -> bool:
        """Count further episodes; False if time cut them, so that they do not compare with whole ones."""
        if self.score is not None and score.timed_out and not self.score.timed_out:
            return False
        self.wall_s += wall_s
        self.played = self.played[0] + len(score.returns), self.played[1] + wall_s
        if self.score is None:
            self.score = score
        else:
            self.score = self.score.followed_by(score)
            self.final = False
        return not score.timed_out

    def fields(self, *, best: bool) -> dict[str, Any]:
        """The fields of an ``evaluation`` message on all its episodes."""
        assert self.score is not None
        return {
            "version": self.policy.version,
            "env_steps": int(self.policy.extras.get("env_steps", 0)),
            **self.score.fields(),
            "seed": self.seed,
            "wall_s": self.wall_s,
            "confirmed": self.fresh,
            "best": best,
            **({"averaged": True} if self.policy.averaged else {}),
            **({"final": True} if self.final else {}),
        }

    def save(
        self,
        path: Path,
        spec: EnvironmentSpec,
        step_cap: int | None,
        randomize: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write the file.

        Args:
            path: of the file.
            spec: of the environment in which the policy was evaluated.
            step_cap: the time limit that the evaluation has set for it, if any.
            randomize: ranges from which it drew their models; empty for the nominal one.
        """
        assert self.score is not None
        fields = self.fields(best=True)
        about = {name: str(value) for name, value in fields.items() if name not in ("version", "seed")}
        about["info"] = json.dumps(fields["info"])
        about["info_counts"] = json.dumps(dict(self.score.info_counts))
        about["returns"] = json.dumps(self.score.returns.tolist())
        about["lengths"] = json.dumps(self.score.lengths.tolist())
        about["starts"] = json.dumps(self.score.starts.tolist())
        about["environment"] = json.dumps(spec.to_dict())
        about["evaluation_seed"] = str(self.seed)
        about["step_cap"] = str(step_cap or 0)
        if randomize:
            about["randomize"] = json.dumps(randomize)
        self.policy.save(path, about)

    @classmethod
    def read(cls, path: Path) -> Contestant | None:
        """Read a file; None if its policy was never scored.

        The returns are not in a file of an earlier version: they are left unread. Where it does not say how
        many episodes have a figure of ``info``, all do. Of more figures than a score has, as an earlier
        version wrote them, the first are kept.
        """
        fields, arrays, about = read_file(path)
        if "evaluation_seed" not in about:
            return None
        one = cls(Policy(fields, arrays), int(about["evaluation_seed"]), wall_s=float(about.get("wall_s", 0)))
        one.fresh, one.final = (about.get(name) == "True" for name in ("confirmed", "final"))
        if "returns" not in about:
            one.num_unread = int(about["num_episodes"])
            return one
        returns = np.array(parsed_list(about["returns"]), np.float64)
        lengths = np.array(parsed_list(about["lengths"]), np.int64)
        cut = np.arange(len(returns)) < int(about["num_truncated"])
        starts = np.arange(len(returns))  # of a file of an earlier version: as if all differed
        if "starts" in about:
            starts = np.array(parsed_list(about["starts"]), np.int64)
        info, counts = (parsed(about.get(each, "{}"), MOST_HEADER) for each in ("info", "info_counts"))
        info = {name: info[name] for name in first_names([info])}
        info_counts = {name: counts[name] for name in info if name in counts}
        num_failed = int(about.get("num_failed", 0))
        timed_out = about["timed_out"] == "True"
        one.score = Score(returns, lengths, starts, cut, timed_out, info, info_counts, num_failed)
        return one


@dataclass
class Race:
    """A race between the best policy and a challenger, decided by what both have played so far.

    An evaluator that keeps the highest score of many policies keeps luck, so a look only nominates a
    challenger. Challenger and best then play fresh episodes of the same starts in rounds, and the challenger
    takes the place only if it is ahead by more than the 95 % interval of their difference, or when the rounds
    are spent by more than its standard error, and above the mean of every episode that the best one has
    played; it is rejected once it is behind. Episodes of a race count for the policy that played them ever
    after, so the best policy's score moves with its own further episodes alone.

    Of two equal policies with normally distributed returns the challenger wins 14 of 100 races at the
    default rounds, which costs nothing. See tests/benchmarks/best_rule.py for what the rule delivers on
    recorded returns.

    Attributes:
        earlier: ``[N]`` returns of the best policy before the race.
        round_size: episodes of each in a round.
        most: episodes of each after which the race ends.
        best: ``[B]`` returns of the best policy in the race; episode ``i`` of both had the same start.
        challenger: ``[C]`` likewise; the shorter of the two decides.
    """

    earlier: Returns
    round_size: int
    most: int
    best: Returns = field(default_factory=lambda: np.zeros(0))
    challenger: Returns = field(default_factory=lambda: np.zeros(0))

    @property
    def num_played(self) -> int:
        """Episodes that both have played."""
        return min(len(self.best), len(self.challenger))

    @property
    def num_due(self) -> int:
        """Episodes that each will have played after the next round."""
        return min(self.num_played + self.round_size, max(self.most, 1))

    @property
    def won(self) -> bool | None:
        """Whether the challenger has won; None while the race is open."""
        num = self.num_played
        spent = num >= self.most
        if num < LEAST and not spent:
            return None
        lead = self.challenger[:num] - self.best[:num]
        if lead.mean() <= 0.0:
            return False
        interval = t_interval(lead)
        ahead = interval is None or interval[0] > 0.0
        if spent and not ahead:
            ahead = bool(lead.mean() > lead.std(ddof=1) / np.sqrt(num))
        if ahead:
            return bool(self.challenger.mean() > np.concatenate([self.earlier, self.best]).mean())
        return False if spent else None
