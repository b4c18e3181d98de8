"""The folder of one run on disk; :func:`write_plan` writes run.json with every path and endpoint explicit."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import DiskFull, InputError
from spreeze_zmq.base.files import POLICY_FILE, replacing, user_name, write_json
from spreeze_zmq.base.journal import recent_of
from spreeze_zmq.base.trust import RUN_FILE
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.releases import releases
from spreeze_zmq.wire.channels import SocketFolder

#: Mode of a run's folder: only its user may read logs, weights and the page's address.
PRIVATE = 0o700
#: A disk without room for this much is full: what a run writes next, its logs and summary, does not fit.
PROBE_BYTES = 64 * 1024
#: Why a process ends that a signal ended; of the broker a run's reason where its launcher has none.
SIGNALLED = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "interrupted"}
#: What the launcher of a run claims in its folder as long as it lives.
CLAIMED = ".run"
#: The folder in a run's with those of its further groups, which are parts of it.
GROUPS = "groups"
#: Names of files that are renamed once they are complete.
UNFINISHED = re.compile(r"\.(writing-|\d+\.|.+\.\d+$)")


class RunFolder:
    """The paths of one run's files.

    Attributes:
        run_file: the resolved plan, which every component is started with.
        summary: the figures of the run, rewritten while it lives.
        metrics: the journal, one JSON object per line.
        broker_state: the state from which a restarted broker resumes.
        logs: one log per process.
        checkpoints: one folder per checkpoint.
        learning: losses at each publication, without times, for each learner that publishes by count.
        best_policy: the best evaluated policy, with everything needed to act.
        recordings: one file for each incarnation of a recorded process.
        page_address: the address of the live run's page, with its token.
        invitation: the key for other machines of a live run that listens for them.
        outbox: what processes hand to the head; on another machine alone, see :mod:`spreeze_zmq.run.outbox`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file, self.summary = path / RUN_FILE, path / "summary.json"
        self.metrics, self.broker_state = path / "metrics.jsonl", path / "broker.json"
        self.logs, self.checkpoints, self.learning = path / "logs", path / "checkpoints", path / "learning"
        self.recordings, self.outbox = path / "recordings", path / "outbox"
        self.best_policy, self.page_address = path / POLICY_FILE, path / "page.url"
        self.invitation = path / "join.key"

    def losses(self, role: str) -> Path:
        """The file in ``learning`` of one learner."""
        return self.learning / f"{role}.jsonl"

    @property
    def shown(self) -> str:
        """The path as a person types it: relative if it is below the current directory."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    @classmethod
    def create(cls, name: str, chosen: str | None = None) -> RunFolder:
        """Make a new folder at :meth:`place`.

        Raises:
            InputError: the chosen folder is not empty, is another user's or cannot be written.
        """
        path = cls.place(name, chosen)
        try:
            os.fspath(path.absolute()).encode()
        except UnicodeEncodeError:
            shown = ascii(os.fspath(path.absolute()))
            problem = "its name is no UTF-8 text, which logs and other programs need"
            raise InputError(f"run folder {shown}: {problem}; choose another with --run-dir") from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                empty = path.is_dir() and not any(path.iterdir())
                path.mkdir(mode=PRIVATE, exist_ok=empty)
                if empty:
                    _make_private(path)
                (path / "logs").mkdir()  # fails for the second of two runs that choose one folder at once
            except FileExistsError:
                raise _in_use(path) from None
            (path / "checkpoints").mkdir()
        except OSError as error:
            raise InputError(f"run folder {path}: {error.strerror}; choose another with --run-dir") from error
        return cls(path.resolve())

    @staticmethod
    def place(name: str, chosen: str | None = None) -> Path:
        """The path of a new folder: ``chosen``, or ``runs/<name>-<time>``, which is made for this run alone.

        Raises:
            InputError: it cannot be made.
        """
        if chosen:
            return Path(chosen)
        try:
            return _make_unique(Path("runs"), f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
        except OSError as error:
            raise InputError(f"run folder runs: {error.strerror}; choose another with --run-dir") from error

    @staticmethod
    def check_new(path: Path) -> None:
        """Raise InputError if a folder that :meth:`create` is to make holds something already."""
        with contextlib.suppress(OSError):  # which ``create`` says
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise _in_use(path)

    @contextlib.contextmanager
    def undone_by_error(self, *, stays: bool) -> Iterator[None]:
        """Leave no run where what is to begin it raises, as where another program has taken one of its ports.

        Args:
            stays: the folder itself stays, empty, as one that the user has named may have been there.
        """
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                for path in self.path.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                if not stays:
                    self.path.rmdir()
            raise

    @property
    def is_full(self) -> bool:
        """Whether ``PROBE_BYTES`` do not fit on the disk any more."""
        probe = self.path / f".probe.{os.getpid()}"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            return DiskFull.cause(error) is not None
        finally:
            probe.unlink(missing_ok=True)
        return False

    def is_filled_by(self, error: Exception) -> bool:
        """Whether it is the full disk of this folder that led to an error: a file in it could not be written,
        or where none is named, none can.
        """
        if (cause := DiskFull.cause(error)) is None:
            return False
        if not isinstance(cause.filename, str | bytes):  # none, or a descriptor
            return self.is_full
        return Path(os.fsdecode(cause.filename)).absolute().is_relative_to(self.path.absolute())

    @property
    def written_s(self) -> float:
        """When figures were written last, in seconds since 1970; 0 where none were."""
        times = [0.0]
        for path in (self.summary, self.metrics, recent_of(self.metrics)):
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)

    def end_summary(self, reason: str, failures: Iterable[tuple[str, str]]) -> None:
        """Write the exit reason and the failures into a summary that its broker could not finish, or ended by
        a signal of its own; without space for that, the earlier one stays whole.
        """
        with contextlib.suppress(OSError, ValueError):
            summary = json.loads(self.summary.read_text(encoding="utf-8"))
            if summary["exit_reason"] in ("", *SIGNALLED.values()):
                known = {(failure["name"], failure["summary"]) for failure in summary["failures"]}
                summary["exit_reason"] = reason
                summary["failures"] += [
                    {
                        "t_s": summary["wall_s"],
                        "name": name,
                        "summary": what.splitlines()[0],
                        "traceback": what,
                        "survived": False,
                    }
                    for name, what in failures
                    if (name, what.splitlines()[0]) not in known
                ]
                write_json(self.summary, summary)

    def mark_failed(self) -> None:
        """Note in the summary that the run has failed, whatever its exit reason is; without space for that,
        the summary stays whole.
        """
        with contextlib.suppress(OSError, ValueError):
            write_json(self.summary, {**json.loads(self.summary.read_text(encoding="utf-8")), "failed": True})

    def tidy(self) -> None:
        """Remove the half-written files of killed processes; no process may be writing here."""
        for path in (*self.path.glob(".*"), *self.path.glob("*/.*"), *self.checkpoints.glob("*/.*")):
            if UNFINISHED.match(path.name):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def write_plan(plan: Plan, folder: RunFolder) -> tuple[Plan, SocketFolder]:
    """Set the plan's paths and endpoints and write run.json; the caller owns the returned socket folder."""
    SocketFolder.sweep()
    sockets = SocketFolder.create(plan.name)
    placed = plan.placed(folder.path, sockets.path)
    placed = replace(placed, began_s=time.time(), packages=releases())
    try:
        with replacing(folder.run_file) as temporary:
            temporary.write_text(placed.to_json())
        sockets.hold(folder.path / CLAIMED)
    except OSError as error:
        sockets.remove()
        raise DiskFull(folder.path) if DiskFull.cause(error) else error from None
    return placed, sockets


def _in_use(path: Path) -> InputError:
    hint = f"choose a new folder, or go on from it with --resume {path}"
    return InputError(f"--run-dir {path} holds something already; {hint}")


def _make_private(path: Path) -> None:
    """Take an empty folder that exists for a run: only its user may go in, and a line says what changes.

    Raises:
        InputError: it belongs to another user, who could read and replace whatever the run writes.
        FileExistsError: somebody has put something into it meanwhile.
    """
    found = path.stat()
    before = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        owner = f"--run-dir {path} belongs to {user_name(found.st_uid)}, who can read and replace all in it"
        if os.geteuid() != 0:
            raise InputError(f"{owner}; choose another folder")
        say(owner, file=sys.stderr)
    if not before & 0o077:
        return
    with contextlib.suppress(OSError):
        path.chmod(before & ~0o077)
    if path.stat().st_mode & 0o077:
        say(f"--run-dir {path}: other users may go in, and its mode cannot be changed", file=sys.stderr)
    else:
        say(f"--run-dir {path}: its mode is 700 now and was {before:o}", file=sys.stderr)
    if any(path.iterdir()):
        raise FileExistsError(path)


def _make_unique(parent: Path, stem: str) -> Path:
    """Make a new folder named ``stem``, or ``stem-2`` and so on if that exists."""
    parent.mkdir(parents=True, exist_ok=True)
    for count in itertools.count(1):
        path = parent / (stem if count == 1 else f"{stem}-{count}")
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=PRIVATE)
            break
    return path
