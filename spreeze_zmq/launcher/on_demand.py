"""Ports that the launcher holds open for processes that start with their first visitor."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.screen.page import address


class OnDemandPorts:
    """One open port for each such role; a visitor's connection waits there while the process starts or
    restarts.

    Attributes:
        page_address: URL of the page, with its token; empty where there is none.
    """

    def __init__(self) -> None:
        self._ports: dict[str, socket.socket] = {}
        self.page_address = ""

    def open(self, role: str, port: int, folder: RunFolder, note: Callable[[str], None]) -> None:
        """Open a role's port, 0 for any free one; where that fails, note it, and the run goes on without."""
        try:
            listener = address.open_port(port)
            self.page_address = address.publish(folder, listener)
            self._ports[role] = listener
        except (InputError, OSError) as error:
            note(f"{role}: {error}; the run goes on without it")

    def visited(self, counts: Mapping[str, int]) -> list[str]:
        """Roles without a process whose port has a visitor."""
        return [
            role for role, port in self._ports.items() if not counts.get(role) and address.is_wanted(port)
        ]

    def descriptors(self, role: str) -> tuple[int, ...]:
        """File descriptors that a process of this role inherits."""
        port = self._ports.get(role)
        return () if port is None else (port.fileno(),)

    def environment(self, role: str) -> dict[str, str]:
        """The variable by which a process of this role finds its port."""
        port = self._ports.get(role)
        return {} if port is None else {address.LISTENER_VARIABLE: str(port.fileno())}

    def shut(self, role: str) -> None:
        """Close a role's port, since nobody serves it any more."""
        if (port := self._ports.pop(role, None)) is not None:
            port.close()

    def close(self, folder: RunFolder) -> None:
        """Close all ports and remove the page's address from the run's folder."""
        for role in list(self._ports):
            self.shut(role)
        folder.page_address.unlink(missing_ok=True)
