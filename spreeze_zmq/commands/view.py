"""``spreeze view RUN [RUN ...]``: serve the page of a run that is over, or that has none, from its folder."""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import threading
from dataclasses import replace
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.commands.evaluate import add_trust
from spreeze_zmq.evaluation.saved import SavedPolicy
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.page import address
from spreeze_zmq.wire.channels import SocketFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, those beside it, ``--trust`` and the port."""
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    add_trust(parser)
    parser.add_argument(
        "beside",
        metavar="RUN",
        nargs="*",
        help="further runs of the same environment and folder, whose curves are drawn beside; live ones grow",
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (default: a free one)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the page's address and serve it until Ctrl-C; for a live run print its own page's address. The
    page of a live run that has none is as the run is when it is loaded.

    Raises:
        InputError: there is no such run, or no such run to draw beside it; the port is taken or out of range.
    """
    from spreeze_zmq.screen.page.agent import PolicyPlayer
    from spreeze_zmq.screen.page.neighbours import Neighbours
    from spreeze_zmq.screen.page.policies import given_policy
    from spreeze_zmq.screen.page.server import Server
    from spreeze_zmq.screen.page.story import journal, run_entry

    folder = RunFolder(Path(arguments.run).resolve())
    if not folder.run_file.exists():
        raise InputError(f"{arguments.run}: no run's folder, it has no {folder.run_file.name}")
    plan = replace(Plan.read(folder.run_file), run_dir=str(folder.path))  # it may have been moved since
    if not 0 <= arguments.port <= 65535:
        raise InputError(f"--port {arguments.port}: expected 0 to 65535")
    others = Neighbours(folder.path, plan.environment.id)
    beside = address.drawing([others.named(given) for given in arguments.beside])
    if (live := address.of_live_run(folder)) is not None:
        say(f"the run is live, its own page is {live}{beside}")
        return 0
    listener = address.open_port(arguments.port)
    token = address.new_token()
    spec, policy, why_not = plan.environment, None, ""
    try:
        saved = SavedPolicy.load(folder.path, arguments.trust)
        spec, policy = saved.environment, saved.policy
    except InputError as error:  # the curves can be shown without a policy
        why_not = str(error)
    with contextlib.ExitStack() as made:
        folders = functools.partial(_folders, made)
        agent = PolicyPlayer(spec, lambda: given_policy(policy), folders, why_not=why_not)
        server = Server(
            listener,
            token,
            lambda: [run_entry(plan, live=False, state=_state_of(folder)), *journal(folder)],
            agent,
            others,
        )
        server.start()
        say(f"{address.url(listener, token)}{beside}  (Ctrl-C ends it)", flush=True)
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        over.wait()
        server.close()
    return 0


def _folders(made: contextlib.ExitStack) -> tuple[Path, Path]:
    """Where MuJoCo's viewer works and logs, not in what may be a stranger's folder, and has its socket.

    Raises:
        ChannelError: there is no place for that socket.
    """
    sockets = SocketFolder.create("view")
    made.callback(sockets.remove)
    return sockets.path, sockets.path


def _state_of(folder: RunFolder) -> str:
    """Whether the run has ended or crashed, or runs without a page of its own, now."""
    try:
        return read_run(folder.path).state
    except InputError:  # it was moved or deleted while the page is open
        return "ended"
