"""What both the checks of a topology and the sockets know of endpoints."""

from __future__ import annotations

import ipaddress

#: The longest path of a unix socket that Linux takes, in bytes.
MAX_IPC_BYTES = 107


def is_loopback(host: str) -> bool:
    """Whether a host of a tcp endpoint is this machine and no other can reach it; IPv4, as sockets are."""
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False
