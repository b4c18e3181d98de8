"""Texts in the characters that their reader has."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spreeze_zmq.base import charset

DRAWN = "best -142.7 ± 77.5 │⣀⠤⠒⠉│ ━─…"
PLAIN = "best -142.7 +- 77.5 |..''| =-~"
#: What decides in which characters Python writes.
VARIABLES = ("LC_ALL", "LC_CTYPE", "LANG", "PYTHONIOENCODING", "PYTHONUTF8", "TERM")


def written(monkeypatch, text, encoding="utf-8", *, is_terminal=False, **environment):
    """The bytes of a text in a settled stream of an encoding."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    stream.isatty = lambda: is_terminal
    charset.spell_out(stream)
    stream.write(text)
    stream.flush()
    return raw.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "koi8-r", "latin-1"])
def test_what_an_encoding_lacks_is_written_in_ascii(monkeypatch, encoding):
    """Not as a question mark, and without an error."""
    text = written(monkeypatch, DRAWN, encoding).decode(encoding)
    assert not set(text) & {"?", "�"}
    assert text.replace("±", "+-").replace("│", "|").replace("─", "-") == PLAIN


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"},
        {"LANG": "C"},
        {"LANG": "C", "LC_CTYPE": "C.UTF-8"},  # as Python sets it
        {"LC_CTYPE": "C"},
        {"TERM": "linux", "LANG": "en_US.UTF-8", "is_terminal": True},
    ],
)
def test_a_reader_without_unicode_gets_ascii_although_python_would_write_utf8(monkeypatch, environment):
    """In a C locale, whose terminal may have nothing else, and on the console of a machine."""
    assert written(monkeypatch, DRAWN, **environment).decode("ascii") == PLAIN


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LANG": "de_DE.UTF-8"},
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"},
        {"LC_ALL": "C", "PYTHONUTF8": "1"},
        {"TERM": "linux"},
    ],
)
def test_everybody_else_gets_unicode(monkeypatch, environment):
    """Where no locale is set, as in a container, and where the user asks for it; a file has no font."""
    assert written(monkeypatch, DRAWN, **environment).decode() == DRAWN


def test_the_users_own_names_are_kept(monkeypatch):
    """A name of a file is its bytes, in UTF-8 or not; in a real ASCII stream other characters are escaped."""
    name = "/runs/josé\udcff"
    raw = "/runs/josé".encode() + b"\xff"
    assert written(monkeypatch, name) == raw
    assert written(monkeypatch, name, LC_ALL="C") == raw
    assert written(monkeypatch, name, "ascii") == rb"/runs/jos\xe9" + b"\xff"


@pytest.mark.parametrize(
    ("command", "environment"),
    [("spreeze", {"LC_ALL": "C", "PYTHONUTF8": "0"}), ("launch", {"PYTHONIOENCODING": "ascii"})],
)
def test_a_mistake_with_an_arrow_in_it_is_one_line_everywhere(command, environment):
    """From the real programs: no second error while the first is printed."""
    words = [sys.executable, "-m", f"spreeze_zmq.commands.{command}", "runs/\u2192", "--x"]
    done = subprocess.run(words, capture_output=True, env=environment, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1


def test_what_a_terminal_obeys_is_shown(capsys):
    """Escapes, bells, returns and turned text; lines, tabs and every other character stay."""
    charset.say("a\x1b[2J\x9b\x07\r\u202eb", "c\n\td…", 1)
    assert capsys.readouterr().out == "a\\x1b[2J\\x9b\\x07\\r\\u202eb c\n\td… 1\n"


def test_every_program_of_the_package_says_what_it_prints():
    """One place makes it printable; lists for other programs, and scripts, are JSON and shell."""
    others = ("nodes/slurm.py", "nodes/by_ray.py", "learner/measure_updates.py", "base/charset.py")
    root = Path(charset.__file__).parents[1]
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name not in others and not name.startswith("commands/bench/"):
            found = re.findall(r'(?<![\w.])print\((?!end="", flush)', path.read_text())
            assert not found, name
