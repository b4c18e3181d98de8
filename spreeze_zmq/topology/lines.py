"""Line numbers of the keys of a TOML text, which ``tomllib`` does not keep."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from spreeze_zmq.topology.tables import Key

_NAME = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_KEY})[ \t]*\]\]?")
_PAIR = re.compile(rf"[ \t]*({_KEY})[ \t]*=")
# The tokens of a value; strings and comments come first, so that brackets and newlines in them do not count.
_TOKEN = re.compile(
    r'"{3}(?:[^\\]|\\.)*?"{3,5}'
    r"|'{3}.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[{]|[\]}]|\n|[^\"'#\[\]{}\n]+|.",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Key, int]:
    """Line number, from 1, of each table header and key outside inline tables of a valid TOML text."""
    lines: dict[Key, int] = {}
    table: Key = ()
    position, line = 0, 1
    while position < len(text):
        header, pair = _HEADER.match(text, position), _PAIR.match(text, position)
        if header:
            table = split_key(header[1])
            _note(lines, table, line)
        elif pair:
            _note(lines, table + split_key(pair[1]), line)
        statement = header or pair
        end = _statement_end(text, statement.end() if statement else position)
        line += text.count("\n", position, end)
        position = end
    return lines


def split_key(text: str) -> Key:
    """``a."b.c".d`` as ``("a", "b.c", "d")``.

    Raises:
        tomllib.TOMLDecodeError: the text is not a TOML key.
    """
    if "\n" in text:
        raise tomllib.TOMLDecodeError("a key stands on one line")
    names: list[str] = []
    level: Any = tomllib.loads(f"{text} = 0")
    while isinstance(level, dict):
        if len(level) != 1:
            raise tomllib.TOMLDecodeError(f"not one key: {text}")
        name, level = next(iter(level.items()))
        names.append(name)
    return tuple(names)


def _note(lines: dict[Key, int], key: Key, line: int) -> None:
    """Note the line of a key and of the tables above it, unless they have one."""
    for length in range(1, len(key) + 1):
        lines.setdefault(key[:length], line)


def _statement_end(text: str, position: int) -> int:
    """Start of the next statement: after the next newline outside brackets and strings."""
    depth = 0
    for token in _TOKEN.finditer(text, position):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth <= 0:
            return token.end()
    return len(text)
