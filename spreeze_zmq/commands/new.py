"""``spreeze new NAME``: start a component of your own from a copy of a shipped one."""

from __future__ import annotations

import argparse
import shlex
import shutil
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import program, shipped_folder
from spreeze_zmq.nodes.building import build

#: Kind and language -> the folder below ``components`` that is copied.
EXAMPLES = {
    "sampler": {"python": "sampler", "cpp": "sampler_cpp", "javascript": "examples/sampler_node"},
}
#: Folder below ``components`` -> a topology whose environment it steps, where it does not step Pendulum-v1.
TOPOLOGIES = {"sampler_cpp": "halfcheetah"}
#: Build products, which are not copied.
_BUILT = ("__pycache__", "node_modules", "package-lock.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the folder to write")
    parser.add_argument("--kind", choices=EXAMPLES, default="sampler", help="the role (default: %(default)s)")
    languages = sorted({language for kind in EXAMPLES.values() for language in kind})
    parser.add_argument("--language", choices=languages, default="python", help="default: %(default)s")


def main(arguments: argparse.Namespace) -> int:
    """Write and build the folder, and print how to use it.

    Raises:
        InputError: the folder exists or cannot be written, or its build failed.
    """
    folder = Path(arguments.name)
    example = EXAMPLES[arguments.kind][arguments.language]
    source = shipped_folder("components") / example
    try:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*_BUILT))
    except FileExistsError:
        raise InputError(f"{folder}: it is there already; choose another name") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error}") from None
    say(f"{folder}: a copy of components/{example}, yours to change")
    command = shlex.join(build(folder.absolute(), print).command)
    topology = f" --topology {TOPOLOGIES[example]}" if example in TOPOLOGIES else ""
    say(f'use it:   [components.{arguments.kind}]\n          use = "./{folder.name}"')
    say(f"check it: {program('spreeze')} conform {arguments.kind}{topology} -- {command}")
    return 0
