"""``spreeze-launch TOPOLOGY``, or ``--env ID``: validate, start every process, supervise, show, clean up."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spreeze_zmq.base.aside import printing_aside
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.importing import hand_down, marked
from spreeze_zmq.base.log_level import log_level
from spreeze_zmq.base.trust import grant_of, make_importable, module_of, modules_folder
from spreeze_zmq.broker.doctor import Doctor
from spreeze_zmq.commands import table
from spreeze_zmq.commands.advice import advice
from spreeze_zmq.commands.arguments import check_set_once, exit_code, for_readers
from spreeze_zmq.commands.begin import leave, pass_over_current_folder
from spreeze_zmq.commands.begun import begun_line, set_anew
from spreeze_zmq.commands.check import FirstLook, endless, report
from spreeze_zmq.commands.graph import graph
from spreeze_zmq.commands.launch_line import check_line, load, not_recorded, parser, seeds_in
from spreeze_zmq.evaluation.saved import own_modules
from spreeze_zmq.launcher.closing import further
from spreeze_zmq.launcher.interrupts import Interrupts, give_back
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.launcher.pinning import own_share
from spreeze_zmq.launcher.threads import why_untraced
from spreeze_zmq.launcher.watches import check_open_files
from spreeze_zmq.nn.native import library as native
from spreeze_zmq.nodes.building import build_all
from spreeze_zmq.nodes.listening import Listening
from spreeze_zmq.nodes.slurm import script
from spreeze_zmq.plan import sizing, topology
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import OBSERVER
from spreeze_zmq.run.checkpoint import CHECKPOINTS_KEPT
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import check_fit, read_run, scaled_as_before
from spreeze_zmq.run.saved_replay import check_replay
from spreeze_zmq.screen.terminal.ending import done, say_last
from spreeze_zmq.screen.terminal.numbers import clock, decimal
from spreeze_zmq.screen.terminal.view import StatusView
from spreeze_zmq.screen.terminal.words import cut_by_time, ended_by, finding_line

if TYPE_CHECKING:
    from spreeze_zmq.launcher.lineage import Origin


@for_readers
def main(argv: Sequence[str] | None = None) -> int:
    """Launch one topology; returns 0 if a stop condition or the user ended the run, 1 if it failed, 2 for bad
    input.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(argv)
    with marked():
        # an interrupt here came before the run began: the run itself handles the signal
        return exit_code("spreeze-launch", _obey, arguments, argv)


def _obey(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    begun = None
    if not arguments.resume:  # that line may repeat what the run before was given, and what overrides it
        check_set_once(arguments)
    if arguments.resume and arguments.topology is None and arguments.env is None:
        begun = Path(arguments.resume)
        arguments = begun_line(begun, argv)
        arguments.beside = modules_folder(read_run(begun).plan["topology_file"])
        for folder in grant_of(begun).import_paths:
            make_importable(Path(folder))
    if arguments.list:
        table.show(("topology", "environment", "algorithm", "what it is"), topology.shipped())
        return 0
    look = FirstLook()
    with printing_aside() if arguments.dry_run else contextlib.nullcontext():
        plan = load(arguments, look)
    if begun:
        _check_modules(plan, begun)
    if arguments.graph:
        say(graph(plan))
        return 0
    if arguments.dry_run:
        _check_dry_run(arguments)
        say(script(plan.name, plan.command), end="")
        return 0
    log_level()  # a wrong word would end every process
    check_open_files(plan, threads=arguments.inproc)
    if arguments.resume:
        plan, arguments.origin = _resumed(plan, Path(arguments.resume), arguments.set)
    arguments.ways = check_line(arguments, plan)
    lines = advice(plan, look.observations())
    if arguments.resume:
        lines += arguments.origin.advice(plan)
    if arguments.check:
        from spreeze_zmq.learner.setup import rehearse  # with torch, which a launcher does not need

        lines += rehearse(plan)
        turned = arguments.origin.turned(plan) if arguments.resume else {}
        lines += tuple(finding_line(row) for row in Doctor(json.loads(plan.to_json()), turned).rows())
        found = "no mistake, but advice" if lines or look.remarks else "nothing to mend"
        say(f"{arguments.topology or arguments.env}: {found}\n{report(plan, lines, look.remarks)}")
        return 0
    run = _launch if arguments.seeds is None else _launch_seeds
    notes = [*(f"environment: {each}" for each in look.remarks), *(f"advice: {line}" for line in lines)]
    return run(plan, arguments, look, notes)


def _launch(
    plan: Plan,
    arguments: argparse.Namespace,
    look: FirstLook,
    lines: Sequence[str],
    chosen: str | None = None,
    interrupts: Interrupts | None = None,
) -> int:
    """Run a plan to its end, with ``lines`` about it first; returns the exit code."""
    with own_share(plan) as shares:
        return _launch_on(shares, plan, arguments, lines, chosen, interrupts)


def _launch_on(
    shares: Mapping[str, frozenset[int]],
    plan: Plan,
    arguments: argparse.Namespace,
    lines: Sequence[str],
    chosen: str | None,
    interrupts: Interrupts | None,
) -> int:
    """Run a plan on this process's cores, and its members on their shares."""
    view = StatusView(plain=arguments.inproc)
    for line in lines:
        view.note(line)
    if arguments.inproc and (untraced := why_untraced()):
        view.note(untraced)
    if never := endless(plan, observed=arguments.observed):
        view.note(never)
    build_all(plan, view.note)
    native.prepare(view.note)
    plan = sizing.settle(plan, say=view.note)
    listening = _listening(plan, arguments)
    if left_out := not_recorded(plan, listens=listening is not None):
        view.note(left_out)
    plan = plan if listening is None else listening.plan
    named = chosen or arguments.run_dir
    folder = RunFolder.create(plan.name, named)
    with folder.undone_by_error(stays=bool(named)):
        if arguments.resume:
            for line in arguments.origin.inherit(folder, plan):
                view.note(line)
        launch = Launch(
            plan,
            folder,
            view,
            threads=arguments.inproc,
            listening=listening,
            shares=shares,
            interrupts=interrupts,
        )
    try:
        return launch.run()
    finally:
        say_last(launch.outcome.lines())


def _check_dry_run(arguments: argparse.Namespace) -> None:
    """Raise InputError for options that ``--dry-run`` does not go with."""
    if arguments.nodes != "slurm":
        raise InputError("--dry-run prints the batch script of --nodes slurm: write both")
    for option in ("listen", "run_dir", "resume", "record", "seeds"):
        if getattr(arguments, option):
            name = option.replace("_", "-")
            raise InputError(f"--{name}: leave it out, and add it to the script where you need it")


def _listening(plan: Plan, arguments: argparse.Namespace) -> Listening | None:
    """Where other machines join, and those that are asked to; None for nowhere. Raises InputError."""
    if not arguments.listen:
        return None
    return Listening.at(arguments.listen, plan, arguments.ways, arguments.nodes)


def _check_modules(plan: Plan, run: Path) -> None:
    """Have the run's processes import the modules that are imported here. Raises InputError if a run's own
    command would now import another module than the run did.
    """
    observer = plan.components.get(OBSERVER)  # one of the user's own takes no callbacks
    callbacks = observer.options.get("callbacks", ()) if observer else ()
    modules = (*own_modules(plan), *filter(None, map(module_of, callbacks)))
    grant_of(run).check_same(modules, sys.path, "write TOPOLOGY or --env ID beside --resume")
    hand_down(modules, modules_folder(plan.topology_file))


def _launch_seeds(plan: Plan, arguments: argparse.Namespace, look: FirstLook, lines: Sequence[str]) -> int:
    """Launch a run for each of ``--seeds`` seeds, until one is interrupted; returns the highest exit code."""
    folders = seeds_in(RunFolder.place(plan.name, arguments.run_dir), arguments, plan)
    codes, outcomes = [0], []
    try:
        for seed, folder in folders.items():
            seeded = load(arguments, look, [f"run.seed={seed}"])
            interrupts = Interrupts()
            codes.append(_launch(seeded, arguments, look, lines, str(folder), interrupts))
            outcomes.append(f"seed {seed}: {_outcome(read_run(folder).summary)}; {folder}")
            if interrupts.count:  # perhaps while the run ended already
                break
            give_back()
    finally:  # a mistake or Ctrl-C between two runs takes nothing from those that have ended
        if outcomes:
            say("\n".join(outcomes))
    return max(codes)


def _outcome(summary: Mapping[str, Any]) -> str:
    """Best return, duration and exit reason of a run, in one line."""
    best = summary.get("best_return")
    reached = "nothing evaluated" if best is None else f"best return {decimal(best)}"
    reached += f" ({cut})" if (cut := cut_by_time(summary.get("best"))) else ""
    took = f"{clock(summary.get('wall_s') or 0.0)}, {done(summary)}"
    return f"{reached} in {took} ({ended_by(summary.get('exit_reason') or 'failed', best)})"


def _resumed(plan: Plan, run: Path, settings: Sequence[str]) -> tuple[Plan, Origin]:
    """A plan that goes on from a run, and what that hands on.

    Args:
        plan: what the line and its topology say.
        run: the folder of the run before.
        settings: those of the line, and of the one that began the run before where it repeats that.

    Raises:
        InputError: it is no run's folder, or a limit of the plan is reached there already.
        CheckpointError: there is no complete checkpoint, or it, or its replay, does not fit the plan.
    """
    from spreeze_zmq.launcher import lineage  # a new run needs none

    check_fit(plan, run)
    origin = lineage.Origin.of(run, set_anew(settings, run))
    check_replay(plan, run, origin.checkpoint)
    for passed_over in origin.skipped:
        say(f"passed over: {passed_over}; going on from {origin.checkpoint.path}", file=sys.stderr)
    if reached := lineage.reached(plan, origin):
        raise InputError(
            f"--resume {run}: it is over already: {reached}, counted from the first run's beginning; "
            f"go on with{further(plan.run.stop, reached)}"
        )
    if origin.run.state == "running":
        say(f"{run} still runs: {_what_is_left_out(origin)}", file=sys.stderr)
    plan = scaled_as_before(plan, origin.run)
    return plan.resuming(origin.checkpoint.path, origin.ancestors), origin


def _what_is_left_out(origin: Origin) -> str:
    """What a run hands on no more that still runs, and how long it keeps what it has handed on."""
    whose, goes = "the checkpoint that it went on from itself,", ""
    if origin.checkpoint.path.resolve().parent == RunFolder(origin.run.folder).checkpoints.resolve():
        whose = "its checkpoint"
        goes = (
            f", and it deletes that one when it has written {CHECKPOINTS_KEPT} more: the new run needs one "
            "of its own by then"
        )
    return (
        f"what it learns after {whose} at {origin.env_steps:,} env steps is no part of the new run{goes} "
        "(let it end first to go on from all of it)"
    )


if __name__ == "__main__":
    pass_over_current_folder()
    sys.exit(leave(main()))
