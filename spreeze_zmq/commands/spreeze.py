"""``spreeze``: every command but the one that trains, ``spreeze-launch``."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from spreeze_zmq import __version__
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import marked
from spreeze_zmq.commands.arguments import Parser, exit_code, for_readers
from spreeze_zmq.commands.begin import leave

#: Each command: its module in this package, and what it does in a line.
COMMANDS = {
    "eval": ("evaluate", "play the best policy of a run in fresh episodes"),
    "play": ("play", "the best policy of a run at work, in a window or as a video"),
    "export": ("export", "the best policy of a run as ONNX or TorchScript"),
    "join": ("join", "lend this machine to a run that another one has started"),
    "nodes": ("nodes", "the machines that have joined a run"),
    "keys": ("keys", "make the keys of tcp channels, and say where they are"),
    "record": ("record", "the best policy of a run at work, kept as a Minari dataset"),
    "replay": ("replay", "one process alone, fed with a recording of spreeze-launch --record"),
    "view": ("view", "open the page of a run that is over"),
    "runs": ("runs", "a table of past and live runs"),
    "doctor": ("doctor", "what keeps a run from learning, and what to try"),
    "compare": ("compare", "learning curves of runs, several seeds joined"),
    "conform": ("conform", "check a component in any language against PROTOCOL.md"),
    "options": ("options", "list every key of a topology"),
    "new": ("new", "a folder with a component of your own, in Python, C++ or JavaScript"),
    "tune": ("tune", "measure what this machine needs for a topology"),
    "search": ("search.search", "which settings learn best"),
    "bench": ("bench.bench", "this machine's limits beside what we reach"),
}


def chosen(words: Sequence[str]) -> tuple[str, Any]:
    """The command that a line names, and its module, which is the only one that is imported: all of them take
    a second. "" and None where it names none.
    """
    name = next((word for word in words if word in COMMANDS), "")
    return name, importlib.import_module(f"spreeze_zmq.commands.{COMMANDS[name][0]}") if name else None


@for_readers
def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns its exit code, 2 for bad input."""
    parser = Parser("spreeze", description=__doc__, epilog="spreeze COMMAND --help explains one.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    words = list(sys.argv[1:] if argv is None else argv)
    named, module = chosen(words)
    for name, (_, text) in COMMANDS.items():
        subparser = commands.add_parser(name, help=text, description=module.__doc__ if name == named else "")
        if name == named:
            module.add_arguments(subparser)
            subparser.set_defaults(main=module.main)
    # argparse drops words after -- that follow options
    at = words.index("--") if words[:1] == ["replay"] and "--" in words else len(words)
    arguments = parser.parse_args(words[:at], argparse.Namespace(program=words[at + 1 :]))
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return InputError.exit_code
    with marked():
        return exit_code(f"spreeze {arguments.command}", arguments.main, arguments)


if __name__ == "__main__":
    sys.exit(leave(main()))
