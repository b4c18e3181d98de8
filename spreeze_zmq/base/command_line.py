"""A command line that is longer than the system lets one be: its words come in a file in memory."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence

from spreeze_zmq.base.files import memory_file

#: Words of more bytes are handed over in a file: Linux takes 128 KiB in one, and in all with the environment.
MOST_BYTES = 1 << 16
#: What the one word that is left begins with; the number of the file's descriptor follows.
IN_FILE = "--words-in="


@contextlib.contextmanager
def handed_over(words: Sequence[str]) -> Iterator[tuple[Sequence[str], tuple[int, ...]]]:
    """The words to start a program with, which begins with ``taken``, and the descriptors to pass to it."""
    if sum(len(os.fsencode(word)) for word in words) <= MOST_BYTES:
        yield words, ()
        return
    with os.fdopen(memory_file("words"), "w+", encoding="ascii") as file:
        json.dump(list(words), file)
        file.flush()
        file.seek(0)  # the program's is the same open file
        yield [f"{IN_FILE}{file.fileno()}"], (file.fileno(),)


def taken(words: Sequence[str]) -> list[str]:
    """The words of a command line, also where they were handed over."""
    number = words[0].removeprefix(IN_FILE) if words and words[0].startswith(IN_FILE) else ""
    if not number.isdecimal():
        return list(words)
    with open(int(number), encoding="ascii") as file:
        found: list[str] = json.load(file)
    return found
