"""What the launcher and the broker say to each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import BROKER, CONTROL, REPORT
from spreeze_zmq.wire import Message, channels

#: What the next broker is told again, and the field that says what each is about: the last one may have died
#: before it had written that down.
HOLDS = {"workers": "role", "exited": "name", "stop_request": "reason"}


class BrokerLine:
    """The launcher's two channels to the broker, which may end and come back.

    What is told from the end of a broker on, as that it has ended, is kept until the next one is heard:
    ZeroMQ would go on writing to the connection of the one that is gone until it has noticed that.

    Args:
        plan: has the channels.
        incarnation: of the launcher.
        lives: the names of the processes that live, or are about to.

    Attributes:
        control: where the broker speaks.
    """

    def __init__(self, plan: Plan, incarnation: int, lives: Callable[[], Collection[str]] = tuple) -> None:
        about = "launcher", incarnation
        self.control: Any = channels.open_channel(plan.channels[CONTROL], "sub", *about)
        self._reports: Any = channels.open_channel(plan.channels[REPORT], "push", *about)
        self._heard, self._lives, self._sockets = 0, lives, Path(plan.socket_dir)
        self._told: dict[tuple[str, str], dict[str, Any]] = {}
        self._told_before: dict[tuple[str, str], dict[str, Any]] = {}

    def tell(self, kind: str, **fields: Any) -> None:
        """Send one message to the broker; it waits while the broker starts, or is behind."""
        self._reports.post(Message(kind, fields))
        if kind in HOLDS:
            self._told[kind, fields[HOLDS[kind]]] = fields

    def _tell_again(self) -> None:
        """Tell the next broker what the last one was told, as far as that holds: an end where nobody else has
        the name by now.
        """
        before, self._told_before = self._told_before, {}
        for (kind, about), fields in before.items():
            if fields is self._told[kind, about] and not (kind == "exited" and about in self._lives()):
                counted = {"restarting": False} if kind == "exited" else {}
                self._reports.post(Message(kind, {**fields, **counted}))

    def serve(self) -> None:
        """Send what has waited, as far as there is room."""
        self._reports.serve()

    def hear(self) -> Iterator[Message]:
        """What has come from the broker; the first status of another one ends the silence."""
        while (message := self.control.receive()) is not None:
            if message.kind == "status" and message.incarnation != self._heard:
                self._heard = message.incarnation
                self._tell_again()
                self.go_on()
            yield message

    def be_silent(self) -> None:
        """The broker has ended: keep what is told until another one is heard. The first status of the one
        that has ended may not have been read yet.
        """
        self._reports.paused, self._told_before = True, dict(self._told)
        last = channels.SocketFolder.holder(self._sockets, f"{BROKER}-0")
        self._heard = last.incarnation if last is not None and last.incarnation else self._heard

    def go_on(self) -> None:
        """Send again."""
        self._reports.paused = False

    def close(self) -> None:
        """Close both channels."""
        self.control.close()
        self._reports.close()
