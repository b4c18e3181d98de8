"""The files of a node's processes: hands theirs to the head, brings those that they ask for."""

from __future__ import annotations

from collections.abc import Callable

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.base.files import POLICY_FILE
from spreeze_zmq.nodes.transfer import Incoming, Outgoing, fits
from spreeze_zmq.plan.roles import VIDEOS
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.outbox import Errand, errands
from spreeze_zmq.wire import Message

#: The kinds of message between this and the head's :class:`Archive`.
KINDS = ("want", "given", "piece", "taken")
#: The files that a head gives.
GIVEN = (POLICY_FILE, *VIDEOS, "checkpoints/*/*", "learning/*")


class Errands:
    """All that this machine's processes have handed over.

    Args:
        folder: of the run, on this machine.
        send: sends a message to the head.
    """

    def __init__(self, folder: RunFolder, send: Callable[[Message], object]) -> None:
        self._folder, self._send = folder, send
        self._begun: dict[str, Errand] = {}
        self._failed: dict[str, str] = {}
        self._outgoing = Outgoing(send)
        self._incoming = Incoming(folder.path, send, lambda _, path: fits(path, GIVEN))

    def run(self) -> None:
        """Begin what is new, end what the head has."""
        for errand in errands(self._folder):
            name = errand.place.name
            if name in self._begun:
                continue
            self._begun[name] = errand
            for path, file in errand.files.items():
                self._outgoing.give(name, path, file.open("rb"))
            if errand.want:
                self._send(Message("want", {"about": name, "what": errand.want}))
        for name, errand in list(self._begun.items()):
            if not errand.want and not self._outgoing.holds(name):
                self._outgoing.failed.pop(name, None)  # the head misses the file, and says so
                self._end(name)

    def holds(self, process: str) -> bool:
        """Whether the head has not got everything that a process has handed over."""
        return any(errand.process == process and not errand.want for errand in errands(self._folder))

    def hear(self, message: Message) -> None:
        """Handle a message of the head. Raises WireError or OSError as :meth:`Incoming.hear` does."""
        if message.kind == "piece":
            self._take(message)
        elif message.kind == "taken":
            self._outgoing.hear(message.fields)
        elif message.kind == "given" and (name := message.fields["about"]) in self._begun:
            if why := self._failed.pop(name, message.fields.get("failed", "")):
                self._begun.pop(name).fail(why)
            else:
                self._end(name)

    def _take(self, message: Message) -> None:
        """Write a piece; the errand fails where that fails, once the head has given the rest."""
        try:
            self._incoming.hear(message.fields, message.arrays["bytes"])
        except (OSError, WireError) as error:
            if (name := message.fields["about"]) in self._begun:
                why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
                self._failed.setdefault(name, why)
            raise

    def close(self) -> None:
        self._outgoing.close()
        self._incoming.close()

    def _end(self, name: str) -> None:
        errand = self._begun.pop(name)
        for path in errand.files:
            if path.startswith(f"{self._folder.checkpoints.name}/"):
                (self._folder.path / path).unlink(missing_ok=True)
        errand.done()
