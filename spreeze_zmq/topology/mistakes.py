"""Collects the mistakes of one file with their places, while checking goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spreeze_zmq.errors import Mistake

#: A key of a topology, one name per level: ``("run", "stop", "minutes")``.
Key = tuple[str, ...]


def dotted(key: Key) -> str:
    """The key as a person writes it; a name that holds a dot is quoted."""
    return ".".join(f'"{name}"' if "." in name or not name else name for name in key)


@dataclass(frozen=True)
class Places:
    """Where each key of a file was written.

    Attributes:
        file: the file's name as messages show it.
        lines: line number, from 1, of each key and table.
        overridden: keys set on the command line; the place of them and of all below them is ``--set``.
    """

    file: str = ""
    lines: Mapping[Key, int] = field(default_factory=dict)
    overridden: frozenset[Key] = frozenset()

    def of(self, key: Key) -> str:
        """``pendulum.toml:4 run.seed``, ``--set run.seed``, or the key alone if it is written nowhere."""
        prefixes = [key[:length] for length in range(len(key), 0, -1)]
        line = next((self.lines[prefix] for prefix in prefixes if prefix in self.lines), None)
        opened = line is None and any(name[: len(key)] == key for name in self.overridden)
        if opened or any(prefix in self.overridden for prefix in prefixes):
            return f"--set {dotted(key)}"
        if line is None:
            return dotted(key)
        return f"{self.file}:{line} {dotted(key)}"


class Mistakes:
    """The mistakes found so far, so that all are reported at once."""

    def __init__(self, places: Places | None = None):
        self.places = places or Places()
        self.found: list[Mistake] = []

    def add(self, key: Key, problem: str, hint: str = "") -> None:
        """Note a mistake at a key of the file."""
        self.add_at(self.places.of(key), problem, hint)

    def add_at(self, place: str, problem: str, hint: str = "") -> None:
        """Note a mistake at a file or command-line option; line breaks in the texts become blanks."""
        self.found.append(Mistake(*(" ".join(text.split()) for text in (place, problem, hint))))
