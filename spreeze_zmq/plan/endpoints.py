"""Facts about endpoints that both the topology checks and the sockets need."""

from __future__ import annotations

import ipaddress

#: The longest path of a unix socket on Linux, in bytes.
MAX_IPC_BYTES = 107


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a tcp endpoint of this host; IPv4, as all sockets here."""
    try:
        return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether this is the IPv4 address of one machine."""
    try:
        return not ipaddress.IPv4Address(host).is_unspecified
    except ValueError:
        return False
