"""Texts in the characters that their reader has: ASCII in a C locale and on a terminal without Unicode.

What a terminal would obey is shown instead: a text may be another's, of a message, a policy file, a run.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Mapping
from typing import IO, Any

#: The dots of a Braille character in its upper and its lower half.
_UPPER, _LOWER = 0x01 | 0x08 | 0x02 | 0x10, 0x04 | 0x20 | 0x40 | 0x80
#: What our texts are drawn with, in ASCII.
ASCII = {ord(drawn): plain for drawn, plain in {"±": "+-", "…": "~", "│": "|", "━": "=", "─": "-"}.items()}
ASCII |= {0x2800 + dots: " '.:"[bool(dots & _UPPER) + 2 * bool(dots & _LOWER)] for dots in range(256)}
#: Terminals whose fonts lack Braille: the kernel's own, and those of a serial line.
OLD_TERMINALS = ("linux", "vt100", "vt102", "vt220", "ansi")
#: What Python sets LC_CTYPE to where the locale is C (PEP 538).
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
#: Error handlers of codecs: other characters are escaped, or written as the bytes that a file's name has.
ESCAPING, AS_BYTES = "spreeze.escaping", "spreeze.as_bytes"


#: Characters that move the cursor, colour, ring or turn the direction of what follows; lines and tabs stay.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text with what a terminal would obey as it is written in Python: ``\\x1b`` for an escape."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def all_printable(value: Any) -> Any:
    """Plain values, whose texts are made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {all_printable(name): all_printable(item) for name, item in value.items()}
    return [all_printable(item) for item in value] if isinstance(value, list) else value


def say(*values: object, end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """``print``, made printable: how every program of the package writes a line. A stream of somebody else's
    program, which ``spell_out`` has not settled, gets what it lacks in ASCII too.
    """
    text, stream = printable(" ".join(map(str, values))), file or sys.stdout
    try:
        print(text, end=end, file=stream, flush=flush)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        print(fitted(text, encoding), end=end, file=stream, flush=flush)


def spell_out(*streams: IO[str]) -> None:
    """Have streams write what they lack in ASCII; without this, one such character ends the program."""
    for stream in streams:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        forced = encoding.lower().startswith("utf") and lacks_unicode(stream)
        with contextlib.suppress(AttributeError):  # a notebook's stream
            stream.reconfigure(  # type: ignore[attr-defined]
                encoding="ascii" if forced else encoding, errors=AS_BYTES if forced else ESCAPING
            )


def lacks_unicode(stream: IO[str]) -> bool:
    """Whether the locale or the terminal of a stream has no Unicode, although Python would write UTF-8."""
    if os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8") == "1":
        return False
    with contextlib.suppress(AttributeError, ValueError):
        if os.environ.get("TERM") in OLD_TERMINALS and stream.isatty():
            return True
    return _locale() in ("C", "POSIX")


def fitted(text: str, encoding: str) -> str:
    """A text in the characters of an encoding."""
    return text.encode(encoding, ESCAPING).decode(encoding, "replace")


def _locale() -> str:
    """The name of the locale that the user has chosen for characters; empty for none."""
    every, characters, usual = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    chosen = "" if characters in _COERCED and usual in ("", "C", "POSIX") else characters
    return every or chosen or usual


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    return _encoded(error, "ascii")


def _as_bytes(error: UnicodeError) -> tuple[bytes, int]:
    return _encoded(error, "utf-8")


def _encoded(error: UnicodeError, encoding: str) -> tuple[bytes, int]:
    """What is written for the characters of an error, and where to go on behind them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return b"".join(_bytes_of(character, encoding) for character in lacking), error.end


def _bytes_of(character: str, encoding: str) -> bytes:
    if plain := ASCII.get(ord(character)):
        return plain.encode()
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is no UTF-8
        return character.encode("ascii", "surrogateescape")
    return character.encode(encoding, "backslashreplace")


codecs.register_error(ESCAPING, _escaped)
codecs.register_error(AS_BYTES, _as_bytes)
