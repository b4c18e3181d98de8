"""The channels whose binding role runs on another machine: a thread of the head binds them, and that role's
process connects, from wherever it runs at the time.

It knows the newest version of the policy, as all of them come through here: none is given twice, whichever
machine the next process that publishes runs on, and whether in this run or in one that goes on from it.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError, in_one_line
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.versions import VERSION_FILE, VersionFile, newest_version
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
        self._said: set[Path] = set()
        self._unsaid: deque[str] = deque()
        self._channels = {name: channel for name, channel in plan.channels.items() if channel.back}
        places = (Path(plan.socket_dir), Path(plan.run_dir))
        self._versions = {place / VERSION_FILE: VersionFile(place) for place in places}
        if plan.run.resume_from is not None and (last := newest_version(_run_of(plan.run.resume_from))):
            self._note(last)
        self._speaking: dict[str, int] = {}
        self._past: frozenset[int] = frozenset()
        self._is_open, self._ends = threading.Event(), threading.Event()
        self._failure: Exception | None = None
        self.start()
        self._is_open.wait()
        if self._failure is not None:
            raise self._failure

    def check(self) -> list[str]:
        """Lines about files that could not be written, one for each.

        Raises:
            ChannelError: nothing is passed on any more; says why, once.
        """
        if (failure := self._failure) is not None:
            self._failure = None
            what = "what the placed processes say is passed on no more"
            raise ChannelError(f"{what}: {in_one_line(failure)}") from failure
        return [self._unsaid.popleft() for _ in range(len(self._unsaid))]

    def fence(self, role: str) -> None:
        """Let the process that publishes for a role say no more: its machine is given up, but may live."""
        bound = [name for name, channel in self._channels.items() if channel.binds == role]
        self._past |= {self._speaking[name] for name in bound if name in self._speaking}

    def close(self) -> None:
        """Forward what is there, and end."""
        self._ends.set()
        self.join()
        for file in self._versions.values():
            file.close()

    def run(self) -> None:
        """Forward."""
        forwarders: list[Forwarder] = []
        try:
            for name, channel in self._channels.items():
                forwarders.append(open_exchange(channel, partial(self._passes, name)))
            self._is_open.set()
            while not self._ends.is_set():
                forwarding.forward(forwarders, _TURN_S)
        except Exception as error:
            self._failure = error
        finally:
            self._is_open.set()
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
        """Write a version to both files; on a disk that is full the next one may succeed."""
        for path, file in self._versions.items():
            try:
                file.raise_to(version)
            except OSError as error:
                if path not in self._said:
                    self._said.add(path)
                    self._unsaid.append(f"{path}: {error.strerror}; the run goes on without it")


def _run_of(checkpoint: str) -> Path:
    """The folder of the run that a checkpoint is of."""
    return Path(checkpoint).parent.parent
