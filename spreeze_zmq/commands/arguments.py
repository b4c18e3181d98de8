"""The command lines and output of all commands: a mistake is one line, and a reader may leave early."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from spreeze_zmq.base import charset
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError, SpreezeError
from spreeze_zmq.base.schema import did_you_mean, show
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.roles import OBSERVER
from spreeze_zmq.plan.topology.document import read_source

#: What the system says where nothing more can be written.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
#: What it says of a file, which it then names, that is none or is somebody else's.
OUT_OF_REACH = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR)
#: Our option -> its names in other programs.
NAMES = {"--run-dir": "--output --out --output-dir --log-dir --logdir --save-path --save-dir"}

#: Our option -> the key that it sets, below its table.
KEYS: Mapping[str, tuple[str, ...]] = {
    "env": ("run", "env"),
    "algorithm": ("run", "algorithm"),
    "callback": ("components", OBSERVER, "callbacks"),
}


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add ``--set``, for commands that read a topology."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=C",
        help="override a key, as in run.seed=2; may be repeated (spreeze options lists the keys)",
    )


def check_set_once(arguments: argparse.Namespace) -> None:
    """Raise InputError for a key that one line sets twice, by an option and by ``--set``, to other values."""
    tables = read_source({}, arguments.set).values
    for option, key in KEYS.items():
        given: Any = getattr(arguments, option, None)
        found: Any = tables
        for name in key:
            found = found.get(name) if isinstance(found, dict) else None
        if given and found is not None and found != given:
            words = f"--{option} {' '.join(given) if isinstance(given, list) else given}"
            raise InputError(
                f"{words}: --set {'.'.join(key)} says something else, {show(found)}: leave one of them out"
            )


def add_seed(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--seed``, for commands that play episodes."""
    text = f"of the first episode (default: {default})"
    parser.add_argument("--seed", type=_seed, metavar="N", help=text)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r:.40}: a whole number from 0 to 2**32 - 1 is expected")
    return int(text)


def add_json_list(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, for commands that print what another program may read instead."""
    parser.add_argument("--json", action="store_true", help="print one JSON list, for another program")


def add_json_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``, for commands that measure."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures to FILE as well")


def for_readers(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """A program's ``main`` that writes in the characters that its reader has, ends with code 0 when that
    reader has left, as ``head`` does, and with 1 and a line where something cannot be written, or a file is
    out of reach.
    """

    @functools.wraps(main)
    def program(argv: Sequence[str] | None = None) -> int:
        charset.spell_out(sys.stdout, sys.stderr)
        try:
            try:
                return main(argv)
            finally:
                print(end="", flush=True)  # at the interpreter's end nobody would catch the error
        except OSError as error:
            left = isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout)
            known = (*UNWRITABLE, *(OUT_OF_REACH if error.filename else ()))
            if not left and error.errno not in known:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not left:
                what = error.filename or "what it prints, or a file, cannot be written"
                say(f"{Path(sys.argv[0]).name}: {what}: {error.strerror}", file=sys.stderr)
            return 0 if left else SpreezeError.exit_code

    return program


def _has_no_reader(stream: IO[str]) -> bool:
    """Whether the reader of a pipe or socket has left."""
    watched = select.poll()
    watched.register(stream.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0))


def exit_code(program: str, command: Callable[..., int], *given: object) -> int:
    """The exit code of a command; prints its error in one line, behind the program's name."""
    try:
        return int(command(*given))
    except SpreezeError as error:
        say(f"{program}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except FileNotFoundError:
        if _stands_somewhere():
            raise
        say(f"{program}: the current folder has been deleted: change to one that exists", file=sys.stderr)
        return InputError.exit_code


def _stands_somewhere() -> bool:
    """Whether the current folder exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` whose errors are one line each; options are not abbreviated."""

    def __init__(self, prog: str | None = None, **named: Any):
        # the docstring of a module
        named["description"] = (named.get("description") or "").replace("``", "")
        super().__init__(prog, **named)
        self.allow_abbrev = False

    def error(self, message: str) -> NoReturn:
        """End the program with one line and the exit code of bad input."""
        self.exit(InputError.exit_code, f"{self.prog}: {message} ({self.prog} --help lists all)\n")

    def parse_known_args(self, *arguments: Any, **named: Any) -> Any:
        """Parse, and end the program at an unknown option, with a hint at the right one. A positional that
        takes several words takes those behind an option too.
        """
        parsed, unknown = super().parse_known_args(*arguments, **named)
        flags = [word for word in unknown if word.startswith("-")]
        several = [each.dest for each in self._get_positional_actions() if each.nargs in ("*", "+")]
        if several and not flags:
            setattr(parsed, several[0], [*getattr(parsed, several[0]), *unknown])
        elif unknown:
            flag = (flags or unknown)[0].partition("=")[0]
            self.exit(InputError.exit_code, f"{self.prog}: {flag}: unknown argument{self._hint(flag)}\n")
        return parsed, []

    def _hint(self, flag: str) -> str:
        near = did_you_mean(flag, self._option_string_actions)
        for ours, names in NAMES.items():
            if flag.replace("_", "-") in names.split() and ours in self._option_string_actions:
                return f"; it is called {ours} here"
        key = topology.setting(flag) if flag.startswith("--") else ""
        if key and "--set" in self._option_string_actions:
            return f"; write --set {key}=VALUE"
        return f"; {near}" if near else f" ({self.prog} --help lists all)"
