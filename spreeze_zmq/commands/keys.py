"""``spreeze keys``: make the keys that encrypt and authenticate tcp channels, once for each user."""

from __future__ import annotations

import argparse

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.endpoints import keys_path, read_keys, write_keys
from spreeze_zmq.wire.channels import make_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--new", action="store_true", help="replace existing keys")


def main(arguments: argparse.Namespace) -> int:
    """Make the keys if there are none, and print the path of their file, never the keys."""
    if arguments.new or not keys_path().exists():
        say(f"{write_keys(make_keys())}: made")
    else:
        read_keys()
        say(f"{keys_path()}: there already (--new replaces them)")
    say("Copy that file, with mode 0600, to every machine of a run. Anyone who has it can join your runs.")
    return 0
