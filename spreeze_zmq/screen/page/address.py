"""The page's address: a local port and a secret token, chosen when the run starts.

The launcher opens the port and keeps it open; the process that serves the page starts with the first visitor
and inherits the port. A visitor who connects while that process starts or restarts waits and is not refused.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import for_children
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run

#: The environment variable that holds the descriptor of the open port.
LISTENER_VARIABLE = "SPREEZE_LISTENER"
HOST = "127.0.0.1"


def open_port(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one.

    Raises:
        InputError: the port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener = socket.socket(fileno=for_children(listener.detach()))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        hint = "write another components.visualizer.port, or 0 for a free one"
        raise InputError(f"port {port} of {HOST}: {error.strerror}; {hint}") from None
    listener.listen(64)
    listener.setblocking(False)
    return listener


def is_wanted(listener: socket.socket) -> bool:
    """Whether a browser has connected and is not served yet."""
    return bool(select.select([listener], [], [], 0)[0])


def new_token() -> str:
    """A secret token of 128 random bits."""
    return secrets.token_urlsafe(16)


def url(listener: socket.socket, token: str) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}/{token}/"


def drawing(names: Sequence[str]) -> str:
    """What the address of a page ends with so that these runs are drawn beside its own."""
    return f"#beside={','.join(quote(name, safe='/') for name in names)}" if names else ""


def publish(folder: RunFolder, listener: socket.socket) -> str:
    """Write the address with a new token to the run's folder, readable by the user only; returns it."""
    address = url(listener, new_token())
    path = folder.page_address
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(address + "\n")
    return address


def of_live_run(folder: RunFolder) -> str | None:
    """The address of a run's page; None if the run is over, whoever has the port by now, or another user's,
    who alone may read it.

    Raises:
        InputError: it is no run's folder.
    """
    if read_run(folder.path).state != "running" or not folder.page_address.exists():
        return None
    try:
        address = folder.page_address.read_text().strip()
        socket.create_connection((HOST, urlsplit(address).port or 0), timeout=1.0).close()
    except OSError:  # it is not for us; or the launcher was killed and has not removed it
        return None
    return address


def token_of(path: Path) -> str:
    """The token of the address in a file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return path.read_text().strip().rstrip("/").rpartition("/")[2]
    except OSError as error:
        raise InputError(f"{path}, the page's address: {error.strerror}") from None


def inherited() -> socket.socket | None:
    """The open port inherited from the launcher; None for a process that was started by hand."""
    written = os.environ.get(LISTENER_VARIABLE)
    return socket.socket(fileno=int(written)) if written else None
