"""Has the launcher's supervisor start processes on other machines as its own."""

from __future__ import annotations

from spreeze_zmq.nodes.head import Nodes
from spreeze_zmq.supervisor import Process, ProcessSpec, Spawner


class PlacedSpawner:
    """Starts each process where it has its place: on a node, or here."""

    def __init__(self, here: Spawner, nodes: Nodes | None) -> None:
        self._here, self._nodes = here, nodes

    def spawn(self, spec: ProcessSpec) -> Process:
        """Start one process."""
        if self._nodes is not None and self._nodes.holds(spec.name):
            return self._nodes.spawn(spec)
        return self._here.spawn(spec)

    def attend(self) -> None:
        self._here.attend()

    def close(self) -> None:
        self._here.close()
