"""``spreeze-launch TOPOLOGY``: validate, start every process, supervise, show, and leave nothing behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from spreeze_zmq import topology
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.errors import CheckpointError, SpreezeError
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.run.checkpoint import Checkpoint, latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.status import StatusView


def main(argv: Sequence[str] | None = None) -> int:
    """Launch one topology; returns 0 when a stop condition or the user ended the run, 1 when it failed, 2 for
    bad input.
    """
    arguments = _parser().parse_args(argv)
    try:
        plan = topology.load(arguments.topology, arguments.set, without=arguments.without)
        if arguments.graph:
            print(topology.graph(plan))
            return 0
        if arguments.check:
            print(f"{arguments.topology}: nothing to mend")
            return 0
        if arguments.resume:
            plan = plan.resuming(_checkpoint(Path(arguments.resume)).path)
        view = StatusView()
        plan = sizing.settle(plan, say=view.note)
        folder = RunFolder.create(plan.name, arguments.run_dir)
        launch = Launch(plan, folder, view)
        try:
            return launch.run()
        finally:
            launch.report_end()
    except SpreezeError as error:
        print(f"spreeze-launch: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the run begins; from then on the signal ends it in its own way
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("spreeze-launch", description=__doc__)
    parser.add_argument("topology", metavar="TOPOLOGY", help="a .toml file, or the name of a shipped one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a key; may be repeated"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="ROLE",
        help="do not start this role; its place is left free",
    )
    parser.add_argument("--check", action="store_true", help="validate only; start nothing")
    parser.add_argument("--graph", action="store_true", help="print processes and channels; start nothing")
    parser.add_argument("--run-dir", metavar="DIR", help="the run's folder (default: runs/NAME-TIME)")
    parser.add_argument(
        "--resume", metavar="RUN", help="go on from the last complete checkpoint of that run's folder"
    )
    return parser


def _checkpoint(run: Path) -> Checkpoint:
    """The last complete checkpoint of a run's folder.

    Raises:
        CheckpointError: there is none.
    """
    found = latest(RunFolder(run).checkpoints)
    if found is None:
        raise CheckpointError(f"--resume {run}: no complete checkpoint in {RunFolder(run).checkpoints}")
    for passed_over in found.skipped:
        print(f"passed over: {passed_over}", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
