"""What the processes on another machine hand to the head: files, and requests for some of the run's.

RUN/outbox/NAME.NUMBER/          of the process NAME; removed by the machine's half when the head has it
    files/checkpoints/.../x.pt   a link to each file, or a copy, at its path below the run's folder
    want                         or one word instead: what the process asks for, which is then in RUN
    failed                       takes the place of that where it cannot be had: the reason
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spreeze_zmq.base.patience import make_folder, patient
from spreeze_zmq.run.folder import RunFolder

#: The words of requests: the best policy, with the videos so far and what each shows; and the newest
#: checkpoint as far as the role restores it.
BEST_POLICY, CHECKPOINT = "best policy", "checkpoint"
_FILES, _WANT, _FAILED = "files", "want", "failed"
#: What is copied of a file at a time: a second's work of a slow disk.
COPIED_BYTES = 16 << 20


@dataclass(frozen=True)
class Errand:
    """One thing that a process has handed over.

    Attributes:
        place: its folder.
        process: the name of the process.
        want: the word of a request; empty for files.
        files: the files, by their paths below the run's folder.
    """

    place: Path
    process: str
    want: str
    files: dict[str, Path]

    def done(self) -> None:
        """Have the process see that it is done."""
        shutil.rmtree(self.place, ignore_errors=True)

    def fail(self, why: str) -> None:
        """Have the process see that what it asked for cannot be had, also where its disk is full."""
        with suppress(OSError):
            (self.place / _WANT).write_text(why)
        (self.place / _WANT).rename(self.place / _FAILED)


def hand_over(
    folder: RunFolder, process: str, files: Iterable[Path], breathe: Callable[[], object] = lambda: None
) -> Path:
    """Hand files of a run's folder to the head; returns the path that exists until they are there.

    Each may be replaced at once; a part of a checkpoint is removed from here once the head has it.

    Args:
        folder: the run's, on this machine.
        process: who hands them over.
        files: in that folder.
        breathe: called again and again while they are copied.
    """
    place, made = _begin(folder, process)
    for file in files:
        link = made / _FILES / file.relative_to(folder.path)
        make_folder(link.parent, parents=True)
        try:
            os.link(file, link)
        except OSError:  # the disk has no links
            patient(partial(_copy, file, link, breathe), link)
    return made.rename(place)


def ask_for(folder: RunFolder, process: str, word: str) -> Path:
    """Ask the head for copies of files; returns the path that exists until they are in the run's folder, or
    for ever where :func:`failure` says why they will not be.
    """
    place, made = _begin(folder, process)
    patient(lambda: (made / _WANT).write_text(word), made)
    return made.rename(place)


def failure(place: Path) -> str | None:
    """Why a request has failed; None if it has not."""
    failed = place / _FAILED
    return (failed.read_text() or "no room is left for it") if failed.exists() else None


def errands(folder: RunFolder) -> list[Errand]:
    """All that has been handed over and is not done yet, the oldest first."""
    found = []
    for place in folder.outbox.iterdir():
        process, _, number = place.name.rpartition(".")
        if number.isdecimal() and not place.name.startswith(".") and failure(place) is None:
            found.append((int(number), _read(place, process)))
    return [errand for _, errand in sorted(found, key=lambda pair: pair[0])]


def _copy(file: Path, target: Path, breathe: Callable[[], object]) -> None:
    with file.open("rb") as source, target.open("wb") as copy:
        while content := source.read(COPIED_BYTES):
            copy.write(content)
            breathe()


def _read(place: Path, process: str) -> Errand:
    want, top = place / _WANT, place / _FILES
    paths = [path for path in sorted(top.rglob("*")) if path.is_file()]
    files = {path.relative_to(top).as_posix(): path for path in paths}
    return Errand(place, process, want.read_text() if want.exists() else "", files)


def _begin(folder: RunFolder, process: str) -> tuple[Path, Path]:
    """The path of a new errand, and the one at which it is made."""
    name = f"{process}.{time.time_ns()}"
    made = folder.outbox / f".{name}"
    make_folder(made)
    return folder.outbox / name, made
