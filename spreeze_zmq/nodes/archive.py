"""The run's files for the processes on one machine: takes what they hand over, gives copies of others."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.nodes.transfer import Incoming, Outgoing, fits
from spreeze_zmq.plan.roles import ROLES, VIDEOS
from spreeze_zmq.run.checkpoint import MANIFEST, manifest_of, parts_of, restore_point
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import BEST_POLICY, CHECKPOINT
from spreeze_zmq.wire import Message


class Archive:
    """The head's side of a machine's :class:`Errands`.

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
        self._wanted: list[str] = []

    def hear(self, message: Message) -> None:
        """Handle a message of the machine.

        Raises:
            WireError: it is not that of a process there, or a file that such a process may not write.
            OSError: a file cannot be read or written; the others go on.
        """
        if message.kind == "piece":
            self._incoming.hear(message.fields, message.arrays["bytes"])
        elif message.kind == "taken":
            self._outgoing.hear(message.fields)
        elif message.kind == "want":
            self._wanted.append(message.fields["about"])
            for path, file in self._files(message.fields["about"], message.fields["what"]):
                self._outgoing.give(message.fields["about"], path, file)
        for about in [about for about in self._wanted if not self._outgoing.holds(about)]:
            self._wanted.remove(about)
            self._send(Message("given", {"about": about}))

    def _files(self, about: str, what: str) -> list[tuple[str, BinaryIO]]:
        """The files of a request, each with its path below the run's folder; none where there are none."""
        if not (role := self._role(about)):
            raise WireError("wrong_field_type", f"want.about is {about[:80]!r}, which is no process there")
        if what == CHECKPOINT:
            return self._checkpoint(role)
        if what != BEST_POLICY:
            return []
        kept = [path for path in self._folder.path.glob("videos/*") if fits(f"videos/{path.name}", VIDEOS)]
        found = [path for path in (self._folder.best_policy, *sorted(kept)) if path.exists()]
        return [(path.relative_to(self._folder.path).as_posix(), path.open("rb")) for path in found]

    def _checkpoint(self, role: str) -> list[tuple[str, BinaryIO]]:
        """The newest checkpoint, as if it had the parts of this role alone, and the record of its losses."""
        losses = self._folder.losses(role)
        files: list[tuple[Path, BinaryIO]] = [(losses, losses.open("rb"))] if losses.exists() else []
        if (found := restore_point(self._folder.checkpoints, self._resume_from)) is not None:
            place, parts = self._folder.checkpoints / found.path.name, parts_of(role, found.parts)
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
