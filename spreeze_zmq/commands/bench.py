"""``spreeze bench``: this machine's limits beside what we reach."""

from __future__ import annotations

import argparse

from spreeze_zmq.errors import InputError

SECTIONS = ("sampler", "channels", "learner")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all of them)"
    )
    parser.add_argument("--env", default="HalfCheetah-v5", metavar="ID", help="environment of the sampler")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="N", help="time for each section")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file as well")


def main(arguments: argparse.Namespace) -> int:
    """Measure the sections that were asked for and print them."""
    for section in arguments.sections:
        if section not in SECTIONS:
            raise InputError(f"no section {section!r}; there are {', '.join(SECTIONS)}")
    return 0
