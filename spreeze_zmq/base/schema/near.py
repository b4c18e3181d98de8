"""Hints at the name that an unknown one may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: A hint lists at most this many names.
MOST_NAMES = 20


def nearest(word: str, names: Iterable[str], likeness: float) -> str:
    """The known name nearest to ``word``; empty if none is as near as ``likeness`` (difflib's ratio)."""
    return next(iter(near_ones(word, names, likeness, 1)), "")


def near_ones(word: str, names: Iterable[str], likeness: float = 0.6, most: int = 3) -> list[str]:
    """The known names at least that near to ``word``, whatever their case, the nearest first."""
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(name.casefold(), []).append(name)
    found = get_close_matches(word.casefold(), by_folded, most, likeness)
    return [get_close_matches(word, by_folded[folded], 1, 0.0)[0] for folded in found]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A hint with the known name nearest to ``word``; empty if none is near."""
    names = list(names)
    found, folded = nearest(word, names, 0.6), word.casefold()
    if not found and len(folded) > 2:
        pairs = ((name, name.casefold()) for name in names)
        found = next((name for name, low in pairs if low.startswith(folded) or folded.startswith(low)), "")
    return f'did you mean "{found}"?' if found else ""


def one_of(names: Iterable[str]) -> str:
    """The names as a message lists them: ``"a", "b"``."""
    return ", ".join(f'"{name}"' for name in names)


def suggestion(word: str, names: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, else all of them."""
    names = list(names)
    known = f"known: {', '.join(names)}" if len(names) <= MOST_NAMES else "spreeze options lists all"
    return did_you_mean(word, names) or known
