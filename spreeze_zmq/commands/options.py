"""``spreeze options [ALGORITHM]``: every key of a topology, what it takes, its default and its meaning."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spreeze_zmq import topology
from spreeze_zmq.commands import table
from spreeze_zmq.plan.option import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "algorithm",
        metavar="ALGORITHM",
        nargs="?",
        help='only this algorithm\'s own keys: "sac", or "my_module:MyAlgorithm"',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list, for another program")


def main(arguments: argparse.Namespace) -> int:
    """Print the tables of a topology in their order."""
    if arguments.algorithm is None:
        tables = topology.reference()
    else:
        topology.make_importable(Path.cwd())
        tables = [topology.algorithm_table(arguments.algorithm)]
    if arguments.json:
        print(json.dumps(topology.entries(tables), indent=1))
        return 0
    for found in tables:
        heading = f"[{found.name}]" + (f"  for algorithm = {show(found.algorithm)}" * bool(found.algorithm))
        rows = [[option.name, _default(option), option.expected, option.help] for option in found.options]
        table.show(("key", "default", "takes", "meaning"), rows, title=heading)
        print()
    return 0


def _default(option: Any) -> str:
    if option.required:
        return "required"
    return "" if option.default in (None, {}) else show(option.default)
