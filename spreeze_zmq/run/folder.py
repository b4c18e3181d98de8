"""The folder of one run on disk; ``settle`` writes run.json there, with every path and endpoint explicit."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spreeze_zmq.channels import SocketFolder
from spreeze_zmq.errors import InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.policy.file import POLICY_FILE


class RunFolder:
    """The paths of one run's files.

    Attributes:
        run_file: the resolved plan, which every component is started with.
        summary: the figures of the run, rewritten while it lives.
        metrics: the journal: one JSON object per line.
        broker_state: the state from which a restarted broker resumes.
        logs: one log per process.
        checkpoints: one folder per checkpoint.
        learning: for each learner that publishes by count: its losses at each publication, without times.
        best_policy: the best evaluated policy, with everything needed to act.
        page_address: the address of the live run's page; whoever can read it can look.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file, self.summary = path / "run.json", path / "summary.json"
        self.metrics, self.broker_state = path / "metrics.jsonl", path / "broker.json"
        self.logs, self.checkpoints, self.learning = path / "logs", path / "checkpoints", path / "learning"
        self.best_policy, self.page_address = path / POLICY_FILE, path / "page.url"

    @property
    def shown(self) -> str:
        """The path as a person types it: from the current directory where it is in there."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

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
