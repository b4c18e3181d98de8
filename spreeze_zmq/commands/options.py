"""``spreeze options [ALGORITHM]``: every key of a topology, its default, its values and its meaning."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spreeze_zmq.base.aside import printing_aside
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.schema import Option, in_words, show
from spreeze_zmq.base.trust import make_importable
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import add_json_list
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.topology.reference import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "of",
        metavar="ALGORITHM",
        nargs="?",
        help="only the keys of this algorithm (sac, my_module:MyAlgorithm) or table (run, balance, sampler)",
    )
    add_json_list(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the reference of each table of a topology, in their order."""
    wanted = arguments.of
    tables = [found for found in topology.reference() if wanted in (None, *names_of(found))]
    if not tables:
        make_importable(Path.cwd())
        with printing_aside():
            tables = [topology.algorithm_table(wanted)]
    if arguments.json:
        say(json.dumps(topology.entries(tables), indent=1))
        return 0
    for found in tables:
        heading = f"[{found.name}]" + (f"  for algorithm = {show(found.algorithm)}" * bool(found.algorithm))
        rows = [[option.name, _default(option), option.takes, option.help] for option in found.options]
        table.show(("key", "default", "takes", "meaning"), rows, title=heading, wrapping=2)
        say()
    return 0


def names_of(found: Table) -> tuple[str, ...]:
    """The arguments that select a table: its algorithm, or its name and the name's last part."""
    return (found.algorithm,) if found.algorithm else (found.name, found.name.partition(".")[2] or found.name)


def _default(option: Option) -> str:
    if option.required:
        return "required"
    if isinstance(option.default, dict):
        return in_words(option.default) if option.default and option.type == "float" else ""
    return "" if option.default is None else show(option.default)
