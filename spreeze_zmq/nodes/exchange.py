"""The channels whose binding role runs on another machine: a thread of the head binds them, and that role's
process connects, from wherever it runs at the time.

It knows the newest version of the policy, as all of them come through here: none is given twice, whichever
machine the next process that publishes runs on, and whether in this run or in one that goes on from it.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from spreeze_zmq.base.errors import SpreezeError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.versions import VersionFile, newest_version
from spreeze_zmq.wire import MAX_COUNT, Message
from spreeze_zmq.wire.channels import Forwarder, forwarding, open_exchange

_TURN_S = 0.1


class Exchange(threading.Thread):
    """Forwards until it is told to end.

    Args:
        plan: placed.

    Raises:
        ChannelError: an endpoint cannot be bound.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(name="exchange", daemon=True)
        self._channels = {name: channel for name, channel in plan.channels.items() if channel.back}
        self._versions = [VersionFile(Path(place)) for place in (plan.socket_dir, plan.run_dir)]
        if plan.run.resume_from is not None and (last := newest_version(_run_of(plan.run.resume_from))):
            self._note(last)
        self._speaking: dict[str, int] = {}
        self._past: frozenset[int] = frozenset()
        self._is_open, self._ends = threading.Event(), threading.Event()
        self._failure: SpreezeError | None = None
        self.start()
        self._is_open.wait()
        if self._failure is not None:
            raise self._failure

    def fence(self, role: str) -> None:
        """Let the process that publishes for a role say no more: its machine is given up, but may live."""
        bound = [name for name, channel in self._channels.items() if channel.binds == role]
        self._past |= {self._speaking[name] for name in bound if name in self._speaking}

    def close(self) -> None:
        """Forward what is there, and end."""
        self._ends.set()
        self.join()
        for file in self._versions:
            file.close()

    def run(self) -> None:
        """Forward."""
        forwarders: list[Forwarder] = []
        try:
            for name, channel in self._channels.items():
                forwarders.append(open_exchange(channel, partial(self._passes, name)))
        except SpreezeError as error:
            self._failure = error
            self._ends.set()
        self._is_open.set()
        while not self._ends.is_set():
            forwarding.forward(forwarders, _TURN_S)
        forwarding.close(forwarders, 0.0)

    def _passes(self, channel: str, message: Message) -> bool:
        """Whether a published message goes on; notes the version of a policy before anybody has it."""
        if message.incarnation in self._past:
            return False
        self._speaking[channel] = message.incarnation
        version = message.fields.get("version")
        if message.kind == "policy" and type(version) is int and 0 < version <= MAX_COUNT:
            self._note(version)
        return True

    def _note(self, version: int) -> None:
        for file in self._versions:
            file.raise_to(version)


def _run_of(checkpoint: str) -> Path:
    """The folder of the run that a checkpoint is of."""
    return Path(checkpoint).parent.parent
