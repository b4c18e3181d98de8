"""The name of a process: ``ROLE-INDEX``, of which a run has each one once."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from spreeze_zmq import channels
from spreeze_zmq.errors import ChannelError, InputError


def claim_name(role: str, index: int | None, sockets: Path) -> tuple[int, channels.Claim]:
    """Lock ``ROLE-INDEX`` for the life of this process; without an index the first free one.

    Raises:
        InputError: the run is over.
        ChannelError: another process has that name.
    """
    if not sockets.is_dir():
        raise InputError(
            f"the run is over: its socket folder {sockets} is gone; "
            "start it again, or give a topology instead"
        )
    if index is not None:
        return index, channels.Claim.take(sockets / f"{role}-{index}")
    for free in itertools.count():
        with contextlib.suppress(ChannelError):
            return free, channels.Claim.take(sockets / f"{role}-{free}")
    raise AssertionError("unreachable")
