"""The folder of one run on disk; ``settle`` writes run.json there, with every path and endpoint explicit."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from spreeze_zmq.channels import SocketFolder
from spreeze_zmq.errors import InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy.file import POLICY_FILE


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run's files."""

    path: Path

    @property
    def shown(self) -> str:
        """The path as a person types it: from the current directory where it is in there."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    @property
    def run_file(self) -> Path:
        """The resolved plan, which every component is started with."""
        return self.path / "run.json"

    @property
    def summary(self) -> Path:
        """The figures of the run, rewritten while it lives."""
        return self.path / "summary.json"

    @property
    def metrics(self) -> Path:
        """The journal: one JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def broker_state(self) -> Path:
        """The state from which a restarted broker resumes."""
        return self.path / "broker.json"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        """One folder per checkpoint."""
        return self.path / "checkpoints"

    @property
    def learning(self) -> Path:
        """For each learner that publishes by count: its losses at each publication, without times."""
        return self.path / "learning"

    @property
    def best_policy(self) -> Path:
        """The best evaluated policy, with everything needed to act."""
        return self.path / POLICY_FILE

    @property
    def page_address(self) -> Path:
        """The address of the live run's page; whoever can read it can look."""
        return self.path / "page.url"

    @classmethod
    def create(cls, name: str, chosen: str | None = None) -> RunFolder:
        """Make a new folder at :meth:`place`.

        Raises:
            InputError: the chosen folder holds something already, or cannot be written.
        """
        path = cls.place(name, chosen)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise InputError(
                    f"--run-dir {path} holds something already; choose a new folder, "
                    f"or go on from it with --resume {path}"
                )
            (path / "logs").mkdir(parents=True, exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"run folder {path}: {error.strerror}; choose another with --run-dir") from error
        return cls(path.resolve())

    @staticmethod
    def place(name: str, chosen: str | None = None) -> Path:
        """The path of a new folder: ``chosen``, or ``runs/<name>-<time>``, which does not exist."""
        return Path(chosen) if chosen else _unused(Path("runs"), f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")


def settle(plan: Plan, folder: RunFolder) -> tuple[Plan, SocketFolder]:
    """Place a plan in its folders and write run.json; the caller owns the returned socket folder."""
    SocketFolder.sweep()
    sockets = SocketFolder.create(plan.name)
    placed = plan.placed(folder.path, sockets.path)
    temporary = folder.run_file.with_suffix(".tmp")
    temporary.write_text(placed.to_json())
    os.replace(temporary, folder.run_file)
    return placed, sockets


def _unused(parent: Path, stem: str) -> Path:
    """A path that does not exist: ``stem``, else ``stem-2`` and so on."""
    path, count = parent / stem, 2
    while path.exists():
        path, count = parent / f"{stem}-{count}", count + 1
    return path
