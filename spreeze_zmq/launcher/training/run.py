"""A finished run in Python: its summary and its best policy."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spreeze_zmq.evaluation.evaluation import Score
from spreeze_zmq.evaluation.saved import SavedPolicy
from spreeze_zmq.policy import Policy
from spreeze_zmq.run.folder import RunFolder


@dataclass(frozen=True)
class Run:
    """A run's folder, its summary and its best policy.

    Attributes:
        folder: the run's.
        trust: modules that the policy file may name beside those of a run that this user made; loading and
            playing it runs their code.
    """

    folder: Path
    trust: Collection[str] = ()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json``: exit_reason, wall_s, env_steps, evaluations, best_return and more."""
        summary: dict[str, Any] = json.loads(RunFolder(self.folder).summary.read_text())
        return summary

    @property
    def policy(self) -> Policy:
        """The best policy by evaluation; ``run.policy(obs)`` gives its deterministic action.

        Raises:
            InputError: no policy was evaluated.
        """
        return self._saved.policy

    def evaluate(self, episodes: int | None = None, seed: int | None = None) -> Score:
        """Play whole episodes with the best policy.

        Args:
            episodes: how many, all at once; by default as many as for its score.
            seed: episode ``i`` begins with ``seed + i``; by default a fresh one. The policy's
                ``metadata["evaluation_seed"]`` repeats the episodes of its score.

        Returns:
            ``returns`` and ``lengths`` of the episodes, and their ``mean_return``.

        Raises:
            InputError: there is no policy, or ``episodes`` is below 1.
        """
        return self._saved.play(episodes, seed)

    @cached_property
    def _saved(self) -> SavedPolicy:
        return SavedPolicy.load(self.folder, self.trust)
