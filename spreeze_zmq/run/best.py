"""The best policy of a run, as the evaluator keeps it in the run's file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.policy import Policy, read_file
from spreeze_zmq.run.arena import Arena
from spreeze_zmq.run.evaluation import Score


@dataclass
class Best:
    """The policy in the run's file.

    Attributes:
        policy: acts.
        mean_return: of the episodes that it was kept for.
        timed_out: whether they were cut by time.
        confirmed: whether they were enough fresh ones.
    """

    policy: Policy
    mean_return: float
    timed_out: bool
    confirmed: bool

    @classmethod
    def read(cls, path: Path, num_fresh: int) -> tuple[Best, int]:
        """The policy of a file and the seed of its episodes; ``num_fresh`` fresh ones confirm it."""
        fields, arrays, about = read_file(path)
        timed_out, fresh = (about[name] == "True" for name in ("timed_out", "confirmed"))
        confirmed = fresh and int(about["num_episodes"]) >= num_fresh
        best = cls(Policy(fields, arrays), float(about["mean_return"]), timed_out, confirmed)
        return best, int(about["evaluation_seed"])

    def save(self, path: Path, fields: Mapping[str, Any], arena: Arena) -> None:
        """Write it to a file, with the fields of its evaluation's report and where that took place."""
        about = {name: str(value) for name, value in fields.items() if name not in ("version", "seed")}
        about["info"] = json.dumps(fields["info"])
        about["environment"] = json.dumps(arena.spec.to_dict())
        about["evaluation_seed"] = str(fields["seed"])
        about["step_cap"] = str(arena.step_cap or 0)
        self.policy.save(path, about)

    def is_beaten_by(self, score: Score, margin: float = 0.0) -> bool:
        """Whether a score is better, by more than ``margin``; one cut by time says less than a whole one."""
        if self.timed_out != score.timed_out:
            return self.timed_out
        return score.mean_return > self.mean_return + margin
