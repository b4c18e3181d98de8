"""Finds and reads a topology file with each key's line, and applies ``--set`` of the command line to it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import Mistake, TopologyError
from spreeze_zmq.base.files import file_name
from spreeze_zmq.base.machine import shipped_folder
from spreeze_zmq.base.schema import suggestion
from spreeze_zmq.plan.topology.tables import Key, Mistakes, Places, dotted

_MAX_BYTES = 1 << 20

_NAME = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_BARE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
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


@dataclass(frozen=True)
class Source:
    """A topology as written, with overrides applied; its values are unchecked.

    Attributes:
        path: the file, absolute; ``ENV.toml`` in the current directory if there is none.
        shown: the name of the file, or of the environment, in messages.
        values: the nested tables.
        mistakes: malformed overrides; knows the place of each key.
    """

    path: Path
    shown: str
    values: dict[str, Any]
    mistakes: Mistakes


def shipped_topologies() -> list[str]:
    return sorted(path.stem for path in shipped_folder("launch").glob("*.toml"))


def shipped() -> list[tuple[str, str, str, str]]:
    """(name, environment, algorithm, description) of each topology that comes with the package; the
    description is the comment at the head of its file.
    """
    found = []
    for name in shipped_topologies():
        text = (shipped_folder("launch") / f"{name}.toml").read_text(encoding="utf-8")
        run = tomllib.loads(text)["run"]
        head = takewhile(lambda line: line.startswith("#"), text.splitlines())
        about = " ".join(line.lstrip("# ") for line in head)
        found.append((name, run["env"], run.get("algorithm", "auto"), about))
    return found


def read_source(
    source: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    beside: str | os.PathLike[str] = "",
) -> Source:
    """Read a topology by path or bare name, or copy its tables, as of a file in the folder ``beside``, and
    apply the overrides (``"run.seed=2"``).

    Raises:
        TopologyError: the file cannot be read or is not TOML.
    """
    lines: Mapping[Key, int] = {}
    if isinstance(source, Mapping):
        values = deepcopy(dict(source))
        run = values.get("run")
        env = run.get("env") if isinstance(run, Mapping) else None
        shown = env if isinstance(env, str) and env else "topology"
        path = Path(beside, file_name(shown.rpartition(":")[2]) + ".toml")
    else:
        shown = os.fspath(source)
        path = _find(shown)
        text = read_text(path, shown)
        values, lines = parse_toml(text, shown), lines_of(text)
    mistakes = Mistakes()
    overridden = frozenset(filter(None, [_apply(values, override, mistakes) for override in overrides]))
    mistakes.places = Places(path.name, lines, overridden)
    return Source(path.absolute(), shown, values, mistakes)


def read_text(path: Path, shown: str) -> str:
    """The text of a file; messages call it ``shown``.

    Raises:
        TopologyError: it cannot be read, is not a file, is too large or is not UTF-8.
    """
    problem, hint = "", ""
    try:
        if path.is_dir():
            problem = "is a folder; a .toml file was expected"
        elif not path.exists():
            problem, hint = "no such file", _missing_hint(shown)
        elif not path.is_file() or path.stat().st_size > _MAX_BYTES:
            problem = "is no topology: a .toml file of at most 1 MB was expected"
        else:
            return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        problem, hint = f"is not UTF-8 text (byte {error.start})", "save the file as UTF-8"
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {error.strerror if isinstance(error, OSError) else error}"
    raise TopologyError(shown, [Mistake(shown, problem, hint)])


def parse_toml(text: str, shown: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        TopologyError: the syntax is wrong; the message names the line.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise TopologyError(
            shown, [Mistake(shown, f"not valid TOML: {error or 'nested too deep'}")]
        ) from None


def _find(shown: str) -> Path:
    """The path if it is a file, else the shipped topology of that name (``ant`` or ``launch/ant.toml``)."""
    path = Path(os.path.expanduser(shown))
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):
        return path
    parts = path.parts
    if len(parts) == 1 or (len(parts) == 2 and parts[0] == "launch"):
        shipped = shipped_folder("launch") / f"{path.name.removesuffix('.toml')}.toml"
        if shipped.is_file():
            return shipped
    return path


def _missing_hint(shown: str) -> str:
    if ":" in shown or re.search(r"-v\d+$", shown):
        return f"an environment needs no topology file: --env {shown}"
    if "/" in shown and not shown.startswith("launch/"):
        return ""
    return "of the shipped topologies, " + suggestion(Path(shown).stem, shipped_topologies())


def _apply(values: dict[str, Any], override: str, mistakes: Mistakes) -> Key | None:
    """Set one ``a.b=value`` in ``values``; returns its key, or ``None`` if it is malformed."""
    place = f"--set {override if len(override) <= 80 else override[:77] + '...'}"
    name, equals, text = override.partition("=")
    if not equals or not text.strip():
        mistakes.add_at(place, "expected KEY=VALUE", "as in --set run.seed=2")
        return None
    problem = "the key is malformed"
    try:
        key = split_key(name)
        problem = "the value is malformed"
        value = _value_of(text.strip())
    except (ValueError, RecursionError):
        mistakes.add_at(place, problem, "as in run.seed=2, run.env=Ant-v5 or components.sampler.count=[1, 8]")
        return None
    table = values
    for length, part in enumerate(key[:-1], start=1):
        below = table.setdefault(part, {})
        if not isinstance(below, dict):
            mistakes.add_at(place, f"{dotted(key[:length])} holds a value and no keys")
            return None
        table = below
    table[key[-1]] = value
    return key


def _value_of(text: str) -> Any:
    """The value of a TOML literal; other text is a string, so that ``run.env=Ant-v5`` needs no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
        if "\n" not in text:
            return parsed["value"]
    except tomllib.TOMLDecodeError:
        if text[0] in "[{\"'":
            raise
    return text


# --- line numbers, which ``tomllib`` does not keep


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
    if _BARE.fullmatch(text):  # as nearly all are; to parse one takes 20 times as long
        return tuple(text.split("."))
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
