"""``spreeze keys``: the keys that tcp channels are encrypted and authenticated with, made once for a user."""

from __future__ import annotations

import argparse

from spreeze_zmq.channels import make_keys
from spreeze_zmq.plan.keys import keys_path, read_keys, write_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--new", action="store_true", help="put new keys in the place of those that are there"
    )


def main(arguments: argparse.Namespace) -> int:
    """Make the keys where there are none, and print where they are; they themselves are never printed."""
    if arguments.new or not keys_path().exists():
        print(f"{write_keys(make_keys())}: made")
    else:
        read_keys()
        print(f"{keys_path()}: there already (--new replaces them)")
    print("Copy that file, with mode 0600, to every machine of a run. Whoever has it can join your runs.")
    return 0
