"""Runs as their folders tell of them: past ones, live ones, and those that ended badly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spreeze_zmq.channels import SocketFolder
from spreeze_zmq.errors import InputError
from spreeze_zmq.run.folder import RunFolder

#: In the exit reasons of runs that failed; see ``supervisor.GaveUp`` and the broker's ``finish``.
FAILED = ("is not started again", "the launcher was killed", "SIGTERM")


@dataclass(frozen=True)
class PastRun:
    """One run's folder.

    Attributes:
        folder: where it is.
        plan: its run.json.
        summary: its summary.json as it stands; empty before the first.
        state: running, ended as it should (also by its user), or crashed.
    """

    folder: Path
    plan: Mapping[str, Any]
    summary: Mapping[str, Any]
    state: Literal["running", "ended", "crashed"]

    @property
    def exit_reason(self) -> str:
        """Why it ended, in words; empty while it runs, and where it was killed."""
        return str(self.summary.get("exit_reason") or "")


def find_runs(place: Path) -> list[PastRun]:
    """The runs in a folder, which may be a run itself, or of several seeds; in the order of their start.

    Raises:
        InputError: there is no such folder.
    """
    if not place.is_dir():
        raise InputError(f"{place}: no such folder; runs are kept in ./runs unless --run-dir says otherwise")
    files = [*place.glob("run.json"), *place.glob("*/run.json"), *place.glob("*/*/run.json")]
    return [run for file in sorted(files, key=lambda file: file.stat().st_mtime) if (run := _read(file))]


def read_run(folder: Path) -> PastRun:
    """One run's folder.

    Raises:
        InputError: it is none.
    """
    found = _read(RunFolder(folder).run_file)
    if found is None:
        raise InputError(f"{folder}: no run's folder: its run.json is missing or cannot be read")
    return found


def _read(run_file: Path) -> PastRun | None:
    plan = _object(run_file)
    if plan is None or "run" not in plan:
        return None
    folder = run_file.parent
    summary = _object(RunFolder(folder).summary) or {}
    return PastRun(folder, plan, summary, _state(plan, summary))


def _state(plan: Mapping[str, Any], summary: Mapping[str, Any]) -> Literal["running", "ended", "crashed"]:
    if SocketFolder.is_held(Path(plan.get("socket_dir") or "/nowhere")):
        return "running"
    reason = str(summary.get("exit_reason") or "")
    return "crashed" if not reason or any(words in reason for words in FAILED) else "ended"


def _object(path: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None
