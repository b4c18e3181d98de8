"""What the launcher and the broker say to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import CONTROL, REPORT
from spreeze_zmq.wire import Message, channels


class BrokerLine:
    """The launcher's two channels to the broker, which may end and come back.

    What is told from the end of a broker on, as that it has ended, is kept until the next one is heard:
    ZeroMQ would go on writing to the connection of the one that is gone until it has noticed that.

    Args:
        plan: has the channels.
        incarnation: of the launcher.

    Attributes:
        control: where the broker speaks.
    """

    def __init__(self, plan: Plan, incarnation: int) -> None:
        about = "launcher", incarnation
        self.control: Any = channels.open_channel(plan.channels[CONTROL], "sub", *about)
        self._reports: Any = channels.open_channel(plan.channels[REPORT], "push", *about)
        self._heard = 0

    def tell(self, kind: str, **fields: Any) -> None:
        """Send one message to the broker; it waits while the broker starts, or is behind."""
        self._reports.post(Message(kind, fields))

    def serve(self) -> None:
        """Send what has waited, as far as there is room."""
        self._reports.serve()

    def hear(self) -> Iterator[Message]:
        """What has come from the broker; the first status of another one ends the silence."""
        while (message := self.control.receive()) is not None:
            if message.kind == "status" and message.incarnation != self._heard:
                self._heard = message.incarnation
                self.go_on()
            yield message

    def be_silent(self) -> None:
        """The broker has ended: keep what is told until another one is heard."""
        self._reports.paused = True

    def go_on(self) -> None:
        """Send again."""
        self._reports.paused = False

    def close(self) -> None:
        """Close both channels."""
        self.control.close()
        self._reports.close()
