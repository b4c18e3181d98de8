"""Endpoints: their limits, for the topology's checks and for sockets."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from spreeze_zmq.base.errors import ChannelError

#: The longest path of a unix socket on Linux, in bytes.
MAX_IPC_BYTES = 107


def ipc_endpoint(path: Path) -> str:
    """The endpoint of a socket at ``path``.

    Raises:
        ChannelError: the path is longer than unix sockets allow.
    """
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_IPC_BYTES:
        raise ChannelError(
            f"{path}: the path of a socket has at most {MAX_IPC_BYTES} bytes, this one {num_bytes}; "
            "choose a shorter one"
        )
    return f"ipc://{path}"


def is_loopback(host: str) -> bool:
    """Whether a tcp host is reachable from this machine only; IPv4, as all sockets here."""
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether ``host`` is the IPv4 address of one machine."""
    try:
        return not ipaddress.IPv4Address(host).is_unspecified
    except ValueError:
        return False
