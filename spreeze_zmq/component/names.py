"""The name of a process, ``ROLE-INDEX``, which is unique in a run."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError, InputError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.wire import channels


def claim_name(role: str, index: int | None, plan: Plan) -> tuple[int, channels.Claim]:
    """Lock ``ROLE-INDEX`` for the life of this process; returns the index and the lock.

    Without an index, take the first free one that the launcher does not use for its own processes.

    Raises:
        InputError: the run is over.
        ChannelError: another process has that name.
    """
    sockets, own = Path(plan.socket_dir), plan.components[role]
    if not sockets.is_dir():
        raise InputError(
            f"the run is over: its socket folder {sockets} is gone; "
            "start it again, or give a topology instead"
        )
    if index is not None:
        return index, channels.Claim.take(sockets / f"{role}-{index}")
    for free in itertools.count(own.count.maximum if own.launched else 0):
        with contextlib.suppress(ChannelError):
            return free, channels.Claim.take(sockets / f"{role}-{free}")
    raise AssertionError("unreachable")
