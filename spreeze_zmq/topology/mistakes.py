"""Mistakes of one file, gathered with their places while the rest is still being checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from spreeze_zmq.errors import Mistake

#: A key of a topology as the names on the way to it: ``("run", "stop", "minutes")``.
Key = tuple[str, ...]


def dotted(key: Key) -> str:
    """The key as a person writes it; a name that holds a dot is quoted."""
    return ".".join(f'"{name}"' if "." in name or not name else name for name in key)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that ``word`` was most likely meant to be, if any is near."""
    by_folded = {name.casefold(): name for name in names}
    folded = word.casefold()
    found = get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    if not found and len(folded) > 2:
        found = [name for name in by_folded if name.startswith(folded) or folded.startswith(name)]
    return by_folded[found[0]] if found else None


def one_of(names: Iterable[str]) -> str:
    """``"a", "b"``: the names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A hint that gives the nearest right name; empty where none is near."""
    near = nearest(word, names)
    return f'did you mean "{near}"?' if near else ""


def suggestion(word: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest right one, else all of them."""
    names = list(names)
    return did_you_mean(word, names) or f"known: {', '.join(names)}"


@dataclass(frozen=True)
class Places:
    """Where each key of a file was written.

    Attributes:
        file: the file's name as messages show it.
        lines: line number, from 1, of each key and table.
        overridden: keys that the command line set; they, and all below them, are placed there.
    """

    file: str = ""
    lines: Mapping[Key, int] = field(default_factory=dict)
    overridden: frozenset[Key] = frozenset()

    def of(self, key: Key) -> str:
        """``pendulum.toml:4 run.seed``, ``--set run.seed``, or the key alone where it stands nowhere."""
        prefixes = [key[:length] for length in range(len(key), 0, -1)]
        if any(prefix in self.overridden for prefix in prefixes):
            return f"--set {dotted(key)}"
        line = next((self.lines[prefix] for prefix in prefixes if prefix in self.lines), None)
        if line is None:
            return dotted(key)
        return f"{self.file}:{line} {dotted(key)}"


class Mistakes:
    """The mistakes found so far; checking goes on after each, so that all are reported at once."""

    def __init__(self, places: Places | None = None):
        self.places = places or Places()
        self.found: list[Mistake] = []

    def add(self, key: Key, problem: str, hint: str = "") -> None:
        """Note a mistake at a key of the file."""
        self.add_at(self.places.of(key), problem, hint)

    def add_at(self, place: str, problem: str, hint: str = "") -> None:
        """Note a mistake at a place that is no key: a file, a command-line option. It becomes one line."""
        self.found.append(Mistake(*(" ".join(text.split()) for text in (place, problem, hint))))
