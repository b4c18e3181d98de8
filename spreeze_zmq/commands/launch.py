"""``spreeze-launch TOPOLOGY``, or ``--env ID``: validate, start every process, supervise, show, clean up."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spreeze_zmq import __version__, envs, topology
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.commands import table
from spreeze_zmq.commands.arguments import Parser
from spreeze_zmq.commands.runs import duration
from spreeze_zmq.errors import CheckpointError, InputError, SpreezeError
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.plan.plan import Plan, StopPlan
from spreeze_zmq.run.checkpoint import Checkpoint, latest
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.run.resume import check_fit
from spreeze_zmq.status import StatusView, program


def main(argv: Sequence[str] | None = None) -> int:
    """Launch one topology; returns 0 when a stop condition or the user ended the run, 1 when it failed, 2 for
    bad input.
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.list:
            rows = [(found.name, found.env, found.algorithm, found.about) for found in topology.shipped()]
            table.show(("topology", "environment", "algorithm", "what it is"), rows)
            return 0
        plan = _load(arguments)
        if arguments.graph:
            print(topology.graph(plan))
            return 0
        if arguments.resume:
            plan = plan.resuming(_checkpoint(plan, Path(arguments.resume)).path)
        envs.try_out(plan.run.env, plan.run.env_kwargs, plan.run.randomize)
        if arguments.check:
            from spreeze_zmq.commands import check  # imports torch, which a launcher has no use for

            print(f"{arguments.topology or arguments.env}: nothing to mend\n{check.report(plan)}")
            return 0
        return _launch(plan, arguments) if arguments.seeds is None else _launch_seeds(plan, arguments)
    except SpreezeError as error:
        print(f"spreeze-launch: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the run begins; from then on the signal ends it in its own way
        return 130


def _parser() -> Parser:
    parser = Parser("spreeze-launch", description=__doc__)
    parser.add_argument(
        "topology", metavar="TOPOLOGY", nargs="?", help="a .toml file, or the name of a shipped one (--list)"
    )
    parser.add_argument("--env", metavar="ID", help="train in this environment, without a topology file")
    parser.add_argument("--algorithm", metavar="NAME", help="instead of the topology's, or of the usual one")
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
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="N runs one after another, with seed, seed + 1 and so on"
    )
    parser.add_argument("--check", action="store_true", help="validate only; start nothing")
    parser.add_argument("--graph", action="store_true", help="print processes and channels; start nothing")
    parser.add_argument("--run-dir", metavar="DIR", help="the run's folder (default: runs/NAME-TIME)")
    parser.add_argument(
        "--resume", metavar="RUN", help="go on from the last complete checkpoint of that run's folder"
    )
    parser.add_argument("--list", action="store_true", help="print the shipped topologies; start nothing")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def _load(arguments: argparse.Namespace, overrides: Sequence[str] = ()) -> Plan:
    """The plan that the command line asks for.

    Raises:
        InputError: there is not one source of it, or it has mistakes.
    """
    if (arguments.topology is None) == (arguments.env is None):
        got = "neither" if arguments.env is None else "both"
        raise InputError(f"expected a TOPOLOGY or --env ID, got {got} (--list prints the shipped topologies)")
    source: str | Mapping[str, Any] = arguments.topology or {"run": {"env": arguments.env}}
    chosen = [f"run.algorithm={json.dumps(arguments.algorithm)}"] if arguments.algorithm else []
    return topology.load(source, [*chosen, *arguments.set, *overrides], without=arguments.without)


def _launch(plan: Plan, arguments: argparse.Namespace, folder: str | None = None) -> int:
    """One run, to its end; returns its exit code."""
    view = StatusView()
    if plan.run.stop == StopPlan():
        view.note("nothing ends this run but Ctrl-C; --set run.stop.minutes=10 would")
    plan = sizing.settle(plan, say=view.note)
    launch = Launch(plan, RunFolder.create(plan.name, folder or arguments.run_dir), view)
    try:
        return launch.run()
    finally:
        launch.report_end(_command(arguments, plan))


def _command(arguments: argparse.Namespace, plan: Plan) -> str:
    """The command of one run of this plan, to go on with."""
    words = [arguments.topology or f"--env={arguments.env}"]
    words += ["--algorithm", arguments.algorithm] if arguments.algorithm else []
    for name in ("set", "without"):
        words += [word for value in getattr(arguments, name) for word in (f"--{name}", value)]
    if arguments.seeds is not None:
        words += ["--set", f"run.seed={plan.run.seed}"]
    return f"{program('spreeze-launch')} {shlex.join(words)}"


def _launch_seeds(plan: Plan, arguments: argparse.Namespace) -> int:
    """Runs of ``--seeds`` seeds one after another until one is interrupted; returns the worst exit code."""
    if arguments.seeds < 1:
        raise InputError(f"--seeds {arguments.seeds}: at least 1 is expected")
    if arguments.resume:
        raise InputError("--seeds N makes N new runs, and --resume goes on with one: leave one of them out")
    if plan.run.stop == StopPlan():
        raise InputError("--seeds N: the first run would never end: --set run.stop.minutes=10 ends each")
    parent = RunFolder.place(plan.name, arguments.run_dir)
    codes, lines = [0], []
    for seed in range(plan.run.seed, plan.run.seed + arguments.seeds):
        folder = parent / f"seed-{seed}"
        codes.append(_launch(_load(arguments, [f"run.seed={seed}"]), arguments, str(folder)))
        summary = read_run(folder).summary
        lines.append(f"seed {seed}: {_told(summary)}; {folder}")
        if str(summary.get("exit_reason", "")).startswith("interrupted"):
            break
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print("\n".join(lines))
    return max(codes)


def _told(summary: Mapping[str, Any]) -> str:
    """A run in a line."""
    best = summary.get("best_return")
    reached = "nothing evaluated" if best is None else f"best return {best:.1f}"
    took = f"{duration(summary.get('wall_s')) or '0s'}, {summary.get('env_steps', 0):,} env steps"
    return f"{reached} in {took} ({summary.get('exit_reason') or 'failed'})"


def _checkpoint(plan: Plan, run: Path) -> Checkpoint:
    """The last complete checkpoint of a run's folder.

    Raises:
        InputError: it is no run's folder.
        CheckpointError: there is none, or it does not fit the plan.
    """
    check_fit(plan, run)
    found = latest(RunFolder(run).checkpoints)
    if found is None:
        raise CheckpointError(f"--resume {run}: no complete checkpoint in {RunFolder(run).checkpoints}")
    for passed_over in found.skipped:
        print(f"passed over: {passed_over}", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
