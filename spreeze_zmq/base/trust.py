"""Whose code may run: a run's folder is trusted where this user made it, a file never.

The launcher leaves a mark of each run in the user's home, outside of the run's folder::

    ~/.local/state/spreeze_zmq/runs/DIGEST.json     DIGEST: SHA-256 of the run's run.json

The mark holds the folder's path and inode number, so that neither a copied nor an edited folder is trusted,
and what the run imported. Nothing in a folder without its mark is believed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import stat
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError, is_installed
from spreeze_zmq.base.files import replacing, user_name
from spreeze_zmq.base.importing import folder_now, import_folder, is_marked
from spreeze_zmq.base.machine import shipped_folder, state_folder

RUN_FILE = "run.json"
#: What to ask of who names a module that is not found.
IS_IT_THERE = "is it beside the topology (of a shipped one: in the current folder), or installed?"
#: Marks that are kept; those of the runs that were not used for the longest time go first.
MOST_MARKS = 4096
#: A run.json larger than this is none of ours.
MOST_BYTES = 16 << 20
#: Argument of an environment's constructor that an evaluation may add to those of the run.
TIME_LIMIT = "max_episode_steps"
#: Folders that ``make_importable`` has put on ``sys.path``: those of runs, and the next run is another.
ADDED: set[str] = set()


class _NotTrustedError(Exception):
    """The reason why nothing in a folder is trusted."""


@dataclass(frozen=True)
class Grant:
    """What code the files of a run may have executed.

    Attributes:
        why_not: why it is none; empty for a run that this user made.
        plan: the contents of its run.json.
        folder: of the run.
        modules: of its environment and of its algorithm.
        import_paths: folders that these are imported from.
    """

    why_not: str = "anybody may have written it"
    plan: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    modules: Collection[str] = ()
    import_paths: Sequence[str] = ()

    def make_importable(self, trust: Collection[str] = ()) -> None:
        """Let this process import what the run did; where that was nothing of the user's, its path stays.

        Args:
            trust: modules that may be others than the run's.

        Raises:
            InputError: another module of the same name comes first.
        """
        search = [*sys.path, *self.import_paths]
        self.check_same((module for module in self.modules if module not in trust), search)
        for folder in self.import_paths if self.modules or trust else ():
            make_importable(Path(folder))

    def check_same(self, modules: Iterable[str], search: Sequence[str], mend: str = "") -> None:
        """Check that modules are those which the run imported; installed ones may be in another environment.

        Args:
            modules: of the run.
            search: where they would be imported from now, before or behind the current folder.
            mend: how this one is taken in place of the run's.

        Raises:
            InputError: one of them would be another.
        """
        for module in modules:
            package = module.partition(".")[0]
            then, now = import_folder(package, self.import_paths), folder_now(package, search)
            known = os.path.realpath(now) in map(os.path.realpath, self.import_paths)
            known = known or (is_installed(now) and is_installed(then))
            if then and now and not known:
                mend = mend or f"give --trust {module} (in Python trust=[{module!r}])"
                is_here = os.path.realpath(import_folder(package, [""]) or "/") == os.path.realpath(then)
                if package in sys.modules:
                    where = "in a new process" if is_here else "in that folder and a new process"
                else:
                    where = "in that folder" if is_marked() else "with that folder first on sys.path"
                raise InputError(
                    f"{self.folder}: {package} is the one in {now} here, and the run's is in {then}: "
                    f"go on {where}, or {mend} to take this one"
                )

    def covers(self, env_id: str, kwargs: Mapping[str, Any]) -> bool:
        """Whether an environment is the run's own, with the run's arguments."""
        run = self.plan.get("run", {})
        own, given = ({**table, TIME_LIMIT: None} for table in (run.get("env_kwargs") or {}, kwargs))
        return env_id == run.get("env") and own == given

    def refusal(self, path: Path, what: str, module: str) -> InputError:
        """The error for a file of this run that names ``what`` of a module, which is not trusted."""
        why = self.why_not or "its run used another"
        return InputError(
            f"{path} names {what} of the module {module!r}, whose code would run, and {why}: "
            f"give --trust {module} (in Python trust=[{module!r}]) if you know where the file comes from"
        )


#: Of a policy that is given as a file: its neighbours may be anybody's.
FILE = Grant()


def module_of(name: str) -> str:
    """The module of ``module:name``; empty for the name of what is shipped or installed."""
    module, colon, _ = name.partition(":")
    return module if colon else ""


def with_trust(command: str, modules: Iterable[str], import_from: str = "") -> str:
    """A command of the shell that may run modules of the user's own; it is as it was without any.

    Args:
        command: what is called with which file or run.
        modules: what it must be told to trust.
        import_from: the folder in which these are looked for; empty for the current directory.
    """
    told = "".join(f" --trust {shlex.quote(module)}" for module in modules)
    path = f"PYTHONPATH={shlex.quote(import_from)} " if told and import_from else ""
    return path + command + told


def make_importable(folder: Path, *, first: bool = False) -> None:
    """Put a folder on ``sys.path``, behind or before all others: the user's modules may be there."""
    if str(folder) not in sys.path:
        sys.path.insert(0 if first else len(sys.path), str(folder))
        ADDED.add(str(folder))


def modules_folder(topology_file: str) -> Path:
    """Where the modules are that a topology names: beside it, of a shipped one in the current folder."""
    folder = Path(topology_file).parent
    return Path.cwd() if folder == shipped_folder("launch") else folder


# --- marks


def marks_folder() -> Path:
    return state_folder() / "runs"


def leave_mark(folder: Path, modules: Iterable[str], import_path: Path) -> None:
    """Mark a new run's folder, which holds its run.json, as made by this user.

    Without a home that can be written there is no mark, and ``grant_of`` says so where one is needed.

    Args:
        folder: the run's.
        modules: of the user's own that the run imports.
        import_path: the folder of its topology.
    """
    modules = tuple(modules)
    with contextlib.suppress(OSError, ValueError):  # no home, or none that can be written
        search = [*sys.path, str(import_path), os.getcwd()]
        found = (import_folder(module.partition(".")[0], search) for module in modules)
        paths = dict.fromkeys([os.path.realpath(import_path), *filter(None, found)])
        mark = {"folder": os.path.realpath(folder), "inode": os.stat(folder).st_ino}
        mark |= {"modules": modules, "import_paths": list(paths)}
        marks = marks_folder()
        marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = _digest((folder / RUN_FILE).read_bytes())
        with replacing(marks / name) as beside:
            beside.touch(mode=0o600)
            beside.write_text(json.dumps(mark) + "\n")
        _prune(marks)


def _digest(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}.json"


def _prune(marks: Path) -> None:
    names = [name for name in os.listdir(marks) if not name.startswith(".")]
    if len(names) <= MOST_MARKS:
        return
    ages = []
    for name in names:
        with contextlib.suppress(OSError):
            ages.append(((marks / name).stat().st_mtime, name))
    for _, name in sorted(ages)[:-MOST_MARKS]:
        (marks / name).unlink(missing_ok=True)


# --- folders


def grant_of(run: Path, *used: str) -> Grant:
    """What the files of a run's folder may have executed: what this user executed when he made it.

    Args:
        run: the folder.
        used: names of further files in it that are going to be read.
    """
    folder = Path(os.path.realpath(run))
    try:
        inside = os.stat(folder)
        _check_own(folder, inside, 0o022)
        content = _own_content(folder / RUN_FILE, inside)
        for name in used:
            _check_file(folder / name, os.lstat(folder / name), inside)
        mark = _mark_of(folder, inside.st_ino, content)
        grant = Grant("", json.loads(content), str(run), tuple(mark["modules"]), tuple(mark["import_paths"]))
    except _NotTrustedError as reason:
        return Grant(str(reason))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        return Grant(f"{folder} cannot be checked ({error})")
    return grant


def _check_own(path: Path, found: os.stat_result, others: int) -> None:
    """Raise _NotTrustedError for a path of another user, or with one of the mode bits ``others``."""
    if found.st_uid != os.geteuid():
        raise _NotTrustedError(f"{path} belongs to {user_name(found.st_uid)}, not to you")
    if found.st_mode & others:
        raise _NotTrustedError(f"others may write {path} (chmod go-w would end that)")


def _check_file(path: Path, found: os.stat_result, inside: os.stat_result) -> None:
    """Raise _NotTrustedError unless a file is this user's, and no link; ``inside`` is the folder's status."""
    if not stat.S_ISREG(found.st_mode):
        raise _NotTrustedError(f"{path} is a link or no file")
    reached = (0o020 if inside.st_mode & 0o010 else 0) | (0o002 if inside.st_mode & 0o001 else 0)
    _check_own(path, found, reached)


def _own_content(path: Path, inside: os.stat_result) -> bytes:
    """The bytes of a run.json of this user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _NotTrustedError(f"{path.parent} has no {path.name}, so no run made it") from None
    except OSError as error:
        raise _NotTrustedError(f"{path} cannot be read ({error.strerror})") from None
    with os.fdopen(descriptor, "rb") as file:
        _check_file(path, os.fstat(descriptor), inside)
        return file.read(MOST_BYTES)


def _mark_of(folder: Path, inode: int, content: bytes) -> Mapping[str, Any]:
    """The mark of a run; one that is used becomes the newest.

    Raises:
        _NotTrustedError: there is none, or it is another folder's.
        ValueError: it is torn.
    """
    marks = marks_folder()
    path = marks / _digest(content)
    try:
        _check_own(marks, os.stat(marks), 0o022)
        _check_file(path, os.lstat(path), os.stat(marks))
        mark: dict[str, Any] = json.loads(path.read_bytes())
    except OSError:
        raise _NotTrustedError(
            f"{marks} has no mark of {folder}, as of a run that another user or machine made, an edited one, "
            "one of an earlier version, or one that could not write there"
        ) from None
    if folder != Path(mark["folder"]) and inode != mark["inode"]:
        raise _NotTrustedError(f"{folder} is a copy of your run {mark['folder']}")
    with contextlib.suppress(OSError):
        os.utime(path)
    return mark
