"""A name has one life at a time: what another one says in it is refused, so that nobody is spoken for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spreeze_zmq.base.errors import WireError
from spreeze_zmq.broker.figures import ProcessRecord
from spreeze_zmq.wire import Message

#: Most lives whose early ``hello`` is remembered.
MOST_EARLY = 1000


class Lives:
    """Which life of each name is heard.

    Args:
        processes: by name, as the record has them.
        silent_s: who has not reported for so long holds its name no longer.

    Attributes:
        owner: the process id in the lock of a name; None where nobody on this machine holds it.
    """

    def __init__(self, processes: Mapping[str, ProcessRecord], silent_s: float) -> None:
        self._processes, self._silent_s = processes, silent_s
        self._early: dict[tuple[str, int], None] = {}
        self.owner: Callable[[str], int | None] = lambda name: None

    def check(self, message: Message, now_s: float) -> None:
        """Refuse a message of another life than the one that holds its name: until that one has said ``bye``,
        the launcher that it has exited, or it has not reported for long. A life that has said
        ``hello`` takes the name from one that has not, and one that holds the name's lock from any other.

        Raises:
            WireError: ``wrong_sender``.
        """
        process = self._processes.get(message.sender)
        if process is not None and message.incarnation == process.incarnation:
            return
        pid = message.fields.get("pid")
        owner = None if pid is None else self.owner(message.sender)
        if owner is not None and pid != owner:
            what = f"{message.kind} came from process {pid}, while {owner} holds the name's lock"
            raise WireError("wrong_sender", what)
        if process is None or (owner is not None and process.pid != owner):
            return
        if self.is_free(process, now_s):
            return
        if message.kind == "hello":
            if not process.ready:
                return
            self._early[message.sender, message.incarnation] = None
            if len(self._early) > MOST_EARLY:
                del self._early[next(iter(self._early))]
        what = f"{message.kind} came from its incarnation {message.incarnation}"
        raise WireError(
            "wrong_sender", f"{what}, while {process.incarnation} lives: a name has one at a time"
        )

    def is_free(self, process: ProcessRecord, now_s: float) -> bool:
        """Whether another life may have the name of this one."""
        return bool(process.gone) or now_s - process.heard_s > self._silent_s

    def was_early(self, name: str, incarnation: int) -> bool:
        """Whether the ``hello`` of a life that takes its name now came while another one had it."""
        early = (name, incarnation) in self._early
        self._early.pop((name, incarnation), None)
        return early
