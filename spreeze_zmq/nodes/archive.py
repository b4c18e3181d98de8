"""The run's files for the processes on one machine: takes what they hand over, gives copies of others."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

from spreeze_zmq.base.errors import CheckpointError, WireError
from spreeze_zmq.nodes.transfer import Incoming, Outgoing, fits
from spreeze_zmq.plan.roles import LEARNERS, ROLES, VIDEOS
from spreeze_zmq.run.checkpoint import MANIFEST, manifest_of, parts_of, restore_point
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import BEST_POLICY, CHECKPOINT
from spreeze_zmq.wire import Message

#: The open files of a request, each with its path below the run's folder; or why they cannot be read.
Found = list[tuple[str, BinaryIO]] | str


class Archive:
    """The head's side of a machine's :class:`Errands`.

    The files of a request are found in a thread: every byte of a checkpoint is verified before it is given,
    which takes longer than a machine waits for a beat.

    Args:
        folder: the run's.
        resume_from: the checkpoint that the run began with, if any.
        send: sends a message to the machine.
        holds: whether a process has its place on that machine.
    """

    def __init__(
        self,
        folder: RunFolder,
        resume_from: str | None,
        send: Callable[[Message], object],
        holds: Callable[[str], bool],
    ) -> None:
        self._resume_from = resume_from
        self._folder, self._send, self._holds = folder, send, holds
        self._outgoing = Outgoing(send)
        self._incoming = Incoming(folder.path, send, self._may_write)
        self._wanted: dict[str, str] = {}
        self._found: SimpleQueue[tuple[str, Found]] = SimpleQueue()
        self._skipped: SimpleQueue[str] = SimpleQueue()

    def hear(self, message: Message) -> None:
        """Handle a message of the machine.

        Raises:
            WireError: it is not that of a process there, or a file that such a process may not write.
            OSError: a file cannot be written; the others go on.
        """
        if message.kind == "piece":
            self._incoming.hear(message.fields, message.arrays["bytes"])
        elif message.kind == "taken":
            self._outgoing.hear(message.fields)
        elif message.kind == "want":
            self._look_for(message.fields["about"], message.fields["what"])

    def serve(self) -> list[str]:
        """Give what has been found, and say when a request is done; returns a line for each that fails, and
        for each checkpoint that was passed over.
        """
        lines = []
        while not self._skipped.empty():
            lines.append(self._skipped.get())
        while not self._found.empty():
            about, found = self._found.get()
            if isinstance(found, str):
                self._wanted[about] = found
                continue
            self._wanted[about] = ""
            for path, file in found:
                self._outgoing.give(about, path, file)
        for about in [about for about in self._wanted if not self._outgoing.holds(about)]:
            why = self._wanted.pop(about) or self._outgoing.failed.pop(about, "")
            self._send(Message("given", {"about": about, **({"failed": why} if why else {})}))
            if why:
                lines.append(f"{about.rpartition('.')[0]} cannot be given what it asks for: {why}")
        return lines

    def _look_for(self, about: str, what: str) -> None:
        """Begin to find the files of a request."""
        if not (role := self._role(about)):
            why = f"want.about is {about[:80]!r}, which is no process there"
            self._send(Message("given", {"about": about, "failed": why}))
            raise WireError("wrong_field_type", why)
        threading.Thread(target=self._find, args=(about, role, what), name=about, daemon=True).start()

    def _find(self, about: str, role: str, what: str) -> None:
        try:
            self._found.put((about, self._files(role, what)))
        except OSError as error:
            self._found.put((about, f"{error.filename}: {error.strerror}"))
        except CheckpointError as error:
            self._found.put((about, str(error)))

    def _files(self, role: str, what: str) -> list[tuple[str, BinaryIO]]:
        """The files of a request; none where there are none."""
        if what == CHECKPOINT:
            return self._checkpoint(role)
        if what != BEST_POLICY:
            return []
        kept = [path for path in self._folder.path.glob("videos/*") if fits(f"videos/{path.name}", VIDEOS)]
        found = [path for path in (self._folder.best_policy, *sorted(kept)) if path.exists()]
        return [(path.relative_to(self._folder.path).as_posix(), path.open("rb")) for path in found]

    def _checkpoint(self, role: str) -> list[tuple[str, BinaryIO]]:
        """The newest checkpoint, as if it had the parts of this role and of the learners beside it alone:
        they read the same manifest; and the record of this role's losses.
        """
        losses = self._folder.losses(role)
        files: list[tuple[Path, BinaryIO]] = [(losses, losses.open("rb"))] if losses.exists() else []
        found, skipped = restore_point(self._folder.checkpoints, self._resume_from)
        for line in skipped:
            self._skipped.put(f"{role}: {line}")
        if found is not None:
            place = self._folder.checkpoints / found.path.name
            there = [role, *(other for other in LEARNERS if other != role and self._holds(f"{other}-0"))]
            parts = {name: part for each in there for name, part in parts_of(each, found.parts).items()}
            files += [(place / name, found.part(name).open("rb")) for name in parts]
            text = manifest_of(parts.values(), found.state)
            files.append((place / MANIFEST, io.BytesIO(text.encode())))
        return [(path.relative_to(self._folder.path).as_posix(), file) for path, file in files]

    def _may_write(self, about: str, path: str) -> bool:
        role = self._role(about)
        return bool(role) and fits(path, ROLES[role].writes)

    def _role(self, about: str) -> str:
        """The role of the process that an errand belongs to; empty if that has no place on the machine."""
        process = about.rpartition(".")[0]
        return process.rpartition("-")[0] if self._holds(process) else ""

    def close(self) -> None:
        self._outgoing.close()
        self._incoming.close()
