"""``spreeze join tcp://HEAD:PORT``: lend this machine to a run that another one has started.

The run's launcher, started with ``--listen``, prints the whole line and the file with the key, which comes on
standard input or by ``--key``. The head decides what runs here; this machine needs the same release of the
package, and the environment's packages. Exit code 0: the run is over, or Ctrl-C; 2: the head refused this
machine; 3: the head is lost.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from spreeze_zmq.base.endpoints import Keys, parse_keys, read_keys
from spreeze_zmq.base.errors import InputError, hushed
from spreeze_zmq.base.log_level import log_level
from spreeze_zmq.base.schema import Unfit
from spreeze_zmq.nodes.half import Half
from spreeze_zmq.plan.roles import MOST_LENT
from spreeze_zmq.plan.topology.wiring import check_endpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("head", metavar="tcp://HEAD:PORT", help="where the run listens, as its launcher says")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="the run's join.key (default: standard input)"
    )
    parser.add_argument(
        "--samplers",
        type=int,
        metavar="N",
        help="at most (default: one a core, or the most of components.sampler.count where that is more; "
        "0: for other roles)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Lend this machine until the run is over."""
    try:
        is_tcp = check_endpoint(arguments.head).startswith("tcp://")
    except Unfit:
        is_tcp = False
    if not is_tcp:
        raise InputError(f"{arguments.head}: expected tcp://HOST:PORT, as the run's launcher prints it")
    if arguments.samplers is not None and not 0 <= arguments.samplers <= MOST_LENT:
        raise InputError(f"--samplers {arguments.samplers}: 0 to {MOST_LENT} are expected")
    log_level()  # a wrong word would end every sampler
    half = Half(arguments.head, _invitation(arguments.key), arguments.samplers)
    with hushed("spreeze"):  # what refuses this machine is its last line
        code = half.run()
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code)  # a regular exit takes 0.4 s of a core: on a busy machine seconds, and the run is over


def _invitation(path: Path | None) -> Keys:
    """The key from a file, or from standard input."""
    if path is not None and not path.exists():
        raise InputError(f"--key {path}: no such file; expected the join.key in the run's folder")
    if path is not None:
        keys = read_keys(path)
    elif sys.stdin.isatty():
        raise InputError("the run's key is expected on standard input: < join.key, or --key FILE")
    else:
        try:
            keys = parse_keys(sys.stdin.read(4096))
        except ValueError:
            raise InputError("standard input holds no key: expected the run's join.key") from None
    if not keys.server:
        raise InputError("that is no key to join with: expected the run's join.key")
    return keys
