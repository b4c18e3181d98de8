"""Whether the run's sockets are there: no process finds another once a cleaner has removed them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from spreeze_zmq.plan.parts import ChannelPlan
from spreeze_zmq.wire.channels import SocketFolder

CHECK_S = 1.0
#: So many checks in a row must miss a socket: one that starts again has none for a moment.
MISSED = 10
#: A file that is touched this often is not old enough for any cleaner.
TOUCH_S = 3600.0


class SocketWatch:
    """Looks once a second whether somebody has removed what living processes have bound.

    Args:
        sockets: the run's.
        channels: by name.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sockets: SocketFolder,
        channels: Mapping[str, ChannelPlan],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        own = {name: sockets.endpoint(name) for name in channels}
        self._sockets, self._clock = sockets, clock
        self._names = [name for name, channel in channels.items() if channel.endpoint == own[name]]
        self._missed: Counter[str] = Counter()
        self._check_s, self._touch_s = 0.0, clock() + TOUCH_S

    def lost(self) -> str:
        """What is gone for good, and what that means, in words; empty for nothing."""
        now_s = self._clock()
        if now_s < self._check_s:
            return ""
        self._check_s = now_s + CHECK_S
        if now_s >= self._touch_s:
            self._touch_s = now_s + TOUCH_S
            self._sockets.touch()
        gone = self._sockets.removed(self._names)
        self._missed = Counter({name: self._missed[name] + 1 for name in gone})
        lost = sorted(name for name, count in self._missed.items() if count >= MISSED)
        if not lost:
            return ""
        folder = self._sockets.path
        return (
            f"somebody removed the run's sockets ({', '.join(lost)}) in {folder}, perhaps a cleaner of "
            f"{folder.parent.parent}: no process can join the run any more"
        )
