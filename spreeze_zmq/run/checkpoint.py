"""Checkpoints on disk: each learner writes its parts, the broker writes the manifest that completes them.

CHECKPOINTS/<id>/                ids sort by the numbers in their names, the newest last
    critic_learner.pt            one file per part; renamed to this when it is complete on the disk
    actor_learner.pt
    MANIFEST.json                written last; a folder without it is never read
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import CheckpointError
from spreeze_zmq.base.files import safely, write_whole
from spreeze_zmq.base.patience import make_folder
from spreeze_zmq.plan.releases import version_of

MANIFEST = "MANIFEST.json"
FORMAT = 1
CHUNK_BYTES = 4 << 20
#: Complete checkpoints that a run keeps.
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint. The CRC-32 detects damaged files, not forged ones."""

    name: str
    bytes: int
    crc32: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Part:
        """Inverse of :meth:`to_dict`. Raises ValueError where the name is not a plain file name."""
        return cls(_plain(str(fields["name"])), int(fields["bytes"]), int(fields["crc32"]))


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint whose parts were intact when it was read.

    Attributes:
        path: its folder.
        state: the run's counters, as given to :func:`complete`.
        parts: its files by name.
    """

    path: Path
    state: dict[str, Any]
    parts: dict[str, Part]

    @property
    def has_replay(self) -> bool:
        """Whether a learner has saved its replay in it."""
        return any("-replay-" in name for name in self.parts)

    def part(self, name: str) -> Path:
        """The path of a part.

        Raises:
            CheckpointError: this checkpoint has no such part.
        """
        if name not in self.parts:
            has = ", ".join(self.parts) or "nothing"
            raise CheckpointError(
                f"{self.path}: it has no part {name!r}, only {has}; resume from a run of the same components"
            )
        return self.path / name

    @classmethod
    def read(cls, path: Path) -> SavedCheckpoint:
        """Read the manifest of a folder and verify every byte of its parts.

        Raises:
            CheckpointError: the checkpoint is damaged or has another format; names the file and the problem.
        """
        checkpoint = read_manifest(path)
        for part in checkpoint.parts.values():
            crc32 = _crc32(path / part.name)
            if crc32 != part.crc32:
                raise _torn(
                    path / part.name, f"its CRC-32 is {crc32:08x}, the manifest says {part.crc32:08x}"
                )
        return checkpoint


def write_part(folder: Path, name: str, write: Callable[[Path], object]) -> Part:
    """Write one file of a checkpoint atomically.

    Args:
        folder: the checkpoint's folder; made if missing.
        name: the file's name; an earlier part of that name is replaced.
        write: writes the file at a given path, which has the same suffix as ``name``; called again after a
            disk was full.

    Returns:
        The part's description, which the broker needs to complete the checkpoint.

    Raises:
        ValueError: the name is not a plain file name.
        CheckpointError: the disk is full, or the folder cannot be written.
    """
    path = folder / _plain(name)
    _write(path, write)
    return Part(name, path.stat().st_size, _crc32(path))


def _plain(name: str) -> str:
    if name == MANIFEST or not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"{name!r} cannot name a part: letters, digits and . _ - only, and not {MANIFEST}")
    return name


def complete(folder: Path, parts: Iterable[Part], state: Mapping[str, Any]) -> None:
    """Write the manifest, which completes the checkpoint in a folder.

    Args:
        folder: the ``folder`` of :func:`write_part`.
        parts: all parts.
        state: counters and other facts about the run, JSON-able.

    Raises:
        CheckpointError: a part is missing or of another size, or the manifest cannot be written.
    """
    named = {part.name: part for part in parts}
    for part in named.values():
        _verify_size(folder, part)
    text = manifest_of(named.values(), state)
    _write(folder / MANIFEST, lambda path: path.write_text(text))


def manifest_of(parts: Iterable[Part], state: Mapping[str, Any]) -> str:
    """The text of a manifest; as in :func:`complete`."""
    manifest = {"format": FORMAT, "parts": [part.to_dict() for part in parts], "state": dict(state)}
    return json.dumps(manifest, indent=1) + "\n"


def parts_of(role: str, parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts that a role has written, and restores."""
    return {name: part for name, part in parts.items() if name.startswith((f"{role}.", f"{role}-"))}


def newest(checkpoints: Path) -> tuple[SavedCheckpoint | None, tuple[str, ...]]:
    """The newest complete and intact checkpoint, None if there is none; and for each newer one a line with
    what is wrong with it.
    """
    found, skipped = _newest(checkpoints)
    return found, tuple(skipped.values())


def _newest(checkpoints: Path) -> tuple[SavedCheckpoint | None, dict[Path, str]]:
    """As :func:`newest`, the lines by the folder that each is of."""
    skipped: dict[Path, str] = {}
    for folder in _newest_first(checkpoints):
        try:
            return SavedCheckpoint.read(folder), skipped
        except CheckpointError as error:
            skipped[folder] = str(error)
    return None, skipped


def latest(checkpoints: Path) -> SavedCheckpoint | None:
    """The newest complete and intact checkpoint; None if there is none."""
    return newest(checkpoints)[0]


def restore_point(
    checkpoints: Path, resume_from: str | None
) -> tuple[SavedCheckpoint | None, tuple[str, ...]]:
    """The checkpoint that a run goes on from: its own last complete one, else that of the run before; and a
    line for each of its own that was complete and is damaged, with where the run goes on.

    Raises:
        CheckpointError: that of the run before is damaged.
    """
    found, skipped = _newest(checkpoints)
    if found is None and resume_from is not None:
        found = SavedCheckpoint.read(Path(resume_from))
    place = "the beginning" if found is None else found.path
    torn = (line for folder, line in skipped.items() if (folder / MANIFEST).exists())
    return found, tuple(f"checkpoint skipped: {line}; goes on from {place}" for line in torn)


def begins_at(resume_from: str | None) -> int:
    """Env steps of the checkpoint that a run goes on from; 0 without one. Where its manifest cannot be read,
    as on another machine, they are those at which it was asked for, which its folder is named by.
    """
    if resume_from is None:
        return 0
    folder = Path(resume_from)
    try:
        return int(read_manifest(folder).state["counts"]["env_steps"])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return next(iter(_place(folder)[0]), 0)


def prune(checkpoints: Path, keep: int = CHECKPOINTS_KEPT) -> list[Path]:
    """Delete all but the ``keep`` newest complete checkpoints; returns the deleted folders.

    The newest complete one always stays, and so do newer folders, which may still be written. File sizes
    decide whether a checkpoint is complete: reading the parts would slow the learners.
    """
    kept, deleted = 0, list[Path]()
    for folder in _newest_first(checkpoints):
        is_complete = False
        with contextlib.suppress(CheckpointError):
            is_complete = bool(read_manifest(folder))
        if (is_complete and kept < max(keep, 1)) or kept == 0:
            kept += is_complete
            continue
        # The manifest first: a half-deleted checkpoint must not be read.
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        deleted.append(folder)
    return deleted


def _newest_first(checkpoints: Path) -> list[Path]:
    folders = (path for path in checkpoints.iterdir() if path.is_dir()) if checkpoints.is_dir() else ()
    return sorted(folders, key=_place, reverse=True)


def _place(folder: Path) -> tuple[list[int], str]:
    """Where a checkpoint stands among others: by its env steps and time, however many digits these have."""
    return [int(number) for number in re.findall(r"\d+", folder.name)], folder.name


def read_manifest(folder: Path) -> SavedCheckpoint:
    """Read a manifest and verify that its parts exist and have the right sizes, but not their bytes. Raises
    CheckpointError.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT:
            wrote_it = version_of(folder.absolute().parent.parent)
            raise CheckpointError(
                f"{path}: its format is {manifest['format']!r}, this version reads {FORMAT}; "
                f"go on with the version of spreeze_zmq that wrote it{wrote_it}"
            )
        parts = [Part.from_dict(part) for part in manifest["parts"]]
        state = dict(manifest["state"])
    except FileNotFoundError as error:
        raise _torn(folder, f"it has no {MANIFEST}, so it was never completed") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _torn(path, f"it cannot be read as a manifest ({type(error).__name__}: {error})") from error
    for part in parts:
        _verify_size(folder, part)
    return SavedCheckpoint(folder, state, {part.name: part for part in parts})


def _verify_size(folder: Path, part: Part) -> None:
    path = folder / part.name
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _torn(path, f"{error.strerror}, the checkpoint needs it") from error
    if size != part.bytes:
        raise _torn(path, f"it has {size} bytes, should have {part.bytes}")


def _torn(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: {problem}; it is torn, use an earlier checkpoint")


def _crc32(path: Path) -> int:
    crc32 = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                crc32 = zlib.crc32(chunk, crc32)
    except OSError as error:
        raise _torn(path, f"it cannot be read: {error.strerror}") from error
    return crc32


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that even a power failure leaves the whole file or none. Raises CheckpointError: the
    disk is full, or the folder cannot be written.
    """
    try:
        make_folder(path.parent, parents=True)
        write_whole(path, write, safely)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be written: {error.strerror or error}; make room or mend its permissions"
        ) from error
