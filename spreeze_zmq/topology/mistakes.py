"""Collects the mistakes of one file with their places, while checking goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from spreeze_zmq.errors import Mistake

#: A hint names no more keys than this.
MOST_NAMES = 20
#: A key of a topology, one name per level: ``("run", "stop", "minutes")``.
Key = tuple[str, ...]


def dotted(key: Key) -> str:
    """The key as a person writes it; a name that holds a dot is quoted."""
    return ".".join(f'"{name}"' if "." in name or not name else name for name in key)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A hint that gives the nearest right name; empty where none is near."""
    by_folded = {name.casefold(): name for name in names}
    folded = word.casefold()
    found = get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    if not found and len(folded) > 2:
        found = [name for name in by_folded if name.startswith(folded) or folded.startswith(name)]
    return f'did you mean "{by_folded[found[0]]}"?' if found else ""


def one_of(names: Iterable[str]) -> str:
    """``"a", "b"``: the names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)


def suggestion(word: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest right one, else all of them."""
    names = list(names)
    known = f"known: {', '.join(names)}" if len(names) <= MOST_NAMES else "spreeze options lists all"
    return did_you_mean(word, names) or known


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
