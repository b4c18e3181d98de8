"""Ports for programs that bind them later."""

import itertools
import os
import socket
import zlib

#: Below those that the system gives away by itself; each worker has some of its own, another suite others.
FIRST, EACH, WORKERS = 20_000, 180, 64
_next = itertools.cycle(range(EACH))


def free_ports(count):
    """Ports of loopback at which nobody listens now, which no other worker of the suite takes."""
    suite = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) + zlib.crc32(suite.encode())
    begin = FIRST + EACH * (worker % WORKERS)
    ports = (begin + number for number in itertools.islice(_next, EACH))
    return list(itertools.islice(filter(_is_free, ports), count))


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
