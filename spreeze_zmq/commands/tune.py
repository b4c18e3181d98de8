"""``spreeze tune TOPOLOGY``: measure a topology's "auto" values on this machine, and the rates they give.

First the learners' batch size and threads, if they are "auto", from updates alone. Then the number of
samplers, in a run that lasts until the count has settled. The next run starts with the values found. Which
settings learn best is found by ``spreeze search``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base import machine, provenance
from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import ComponentFailed, InputError, NoHome
from spreeze_zmq.base.files import check_output, output, write_json
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.log_level import log_level
from spreeze_zmq.base.rates import rate
from spreeze_zmq.base.schema.scheduled import goes_over_run
from spreeze_zmq.commands.advice import advice
from spreeze_zmq.commands.arguments import add_json_file, add_set
from spreeze_zmq.commands.check import FirstLook
from spreeze_zmq.launcher.launcher import Launch
from spreeze_zmq.launcher.pinning import own_share
from spreeze_zmq.launcher.watches import check_open_files
from spreeze_zmq.nodes.building import build_all
from spreeze_zmq.nodes.listening import need_no_machine
from spreeze_zmq.plan import sizing, topology, tuning
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.terminal.numbers import decimal
from spreeze_zmq.screen.terminal.view import View

#: A count must stay settled for this long.
SETTLED_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("topology", metavar="TOPOLOGY", help="a .toml file, or the name of a shipped one")
    add_set(parser)
    parser.add_argument(
        "--seconds",
        type=float,
        default=45.0,
        metavar="N",
        help="measure at most this long; it ends as soon as the count has settled (default: %(default)g)",
    )
    add_json_file(parser)


class TuneView(View):
    """Prints the changes of a run, and ends it when its sampler count has settled."""

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self._settled_since_s: float | None = None

    def update(self, status: Mapping[str, Any]) -> None:
        """End the run once the count has been settled for ``SETTLED_S``."""
        if not status["balance"]["settled"]:
            self._settled_since_s = None
            return
        self._settled_since_s = self._settled_since_s or time.monotonic()
        if self.launch is not None and time.monotonic() - self._settled_since_s >= SETTLED_S:
            self.launch.outcome.stop_reason = self.launch.outcome.stop_reason or "measured"

    def note(self, line: str) -> None:
        say(line, flush=True)


def main(arguments: argparse.Namespace) -> int:
    """Measure, print the chosen values and the expected rates, and keep them for the next run.

    Raises:
        InputError: there is a mistake in the topology, the time or the file.
        ComponentFailed: a process failed too often; the message holds the first failure.
    """
    if not 1 <= arguments.seconds <= 3600:
        raise InputError(f"--seconds {arguments.seconds:g}: expected 1 to 3600")
    if arguments.json is not None:
        check_output(arguments.json)
    look = FirstLook()
    plan = topology.load(arguments.topology, arguments.set, look=look)
    only = [_end(plan, arguments.seconds), "run.checkpoint_minutes=1e6"]
    plan = topology.load(arguments.topology, [*arguments.set, *only], look=look)
    need_no_machine(plan, may_listen=False)
    if plan.offline:
        raise InputError(
            "components.sampler.count = 0: the number of samplers is measured, and a run on data alone has "
            "none (spreeze bench learner measures updates)"
        )
    log_level()  # a wrong word would end every process
    check_open_files(plan)
    for line in advice(plan, look.observations()):
        say(f"advice: {line}", flush=True)
    with own_share(plan) as shares:  # what is kept holds for these cores
        build_all(plan, print)
        plan = sizing.settle(plan, remeasure=True, say=print)
        found = measure(plan, shares)
        say(report(plan, found))
        if arguments.json is not None:
            about = {"machine": provenance.properties(), "topology": plan.name, "auto": plan.measured}
            write_json(arguments.json, {**about, **found}, output)
    return 0


def _end(plan: Plan, seconds: float) -> str:
    """The override by which a run ends when it has been measured; in order, where a schedule over the run
    follows no clock, at its own counts if these come first.
    """
    needs_counts = plan.balance.in_order and goes_over_run(plan.algorithm)
    counts = plan.run.stop.counted(in_order=True) if needs_counts else {}
    limits = [f"{name}={limit!r}" for name, limit in {**counts, "minutes": seconds / 60}.items()]
    return f"run.stop={{{', '.join(limits)}}}"


def measure(plan: Plan, shares: Mapping[str, frozenset[int]]) -> dict[str, Any]:
    """Run until the count has settled or the plan's time is over; returns the figures of the last decision.

    Args:
        plan: of the run.
        shares: CPUs of the members that run here.

    Raises:
        ComponentFailed: a process failed too often, or the rates never became steady.
    """
    watch, before = TuneView(), _written_ns(plan)
    with tempfile.TemporaryDirectory(prefix="spreeze-tune-") as folder:
        run = RunFolder.create(plan.name, f"{folder}/run")
        launch = Launch(plan, run, watch, remeasure=True, shares=shares)
        watch.launch = launch
        if launch.run() and launch.outcome.failures:
            name, what = launch.outcome.failures[0]
            raise ComponentFailed(f"{name}: {what}")
        lines = list(read_journal(launch.folder.metrics, ("balance",)))
        summary = read_run(run.path).summary  # a foreign broker may leave most of it out
    decided = [line for line in lines if line["decision"].get("steady")]
    if not decided:
        reason = str(summary.get("exit_reason", ""))
        longer = f"it was {reason}" if reason.startswith("interrupted") else _longer(plan, reason)
        raise ComponentFailed(f"the rates did not become steady; {longer}")
    about = {name: lines[-1][name] for name in ("settled", "movable")}
    about |= {"disturbances": summary.get("disturbances", 0), "kept": _written_ns(plan) != before}
    return {**about, **decided[-1]["decision"]}


def _longer(plan: Plan, reason: str) -> str:
    """How a run that has ended for this reason lasts longer."""
    for name, limit in plan.run.stop.counted(in_order=True).items():
        if reason.startswith(name):
            ends = f"a schedule goes over run.stop.{name} = {limit:,}, at which the run ended"
            return f"{ends}: give it longer with --set run.stop.{name}=N"
    return "give it longer with --seconds"


def _written_ns(plan: Plan) -> int:
    """When the settled count of such a plan was kept last; 0 where none is."""
    try:
        return machine.file_of(tuning.subject_of(plan)).stat().st_mtime_ns
    except OSError:
        return 0


def report(plan: Plan, found: Mapping[str, Any]) -> str:
    """The chosen values and the expected rates, as lines of text."""
    sampler, about = plan.components["sampler"], provenance.properties()
    count, ratio = found["samplers"], found["replay_ratio"]
    lines = [
        f"{about['cpu']}, {about['cores']} cores of which {found['busy_cores']:.1f} were busy",
        f"plan: {count} samplers of {sampler.count.minimum} to {sampler.count.maximum}"
        + (f", {sampler.options['envs']} environments in each" if "envs" in sampler.options else ""),
        f"expect: {rate(found['received_per_s'])} env steps and {rate(found['trained_per_s'])} trained "
        f"transitions a second, replay ratio {decimal(ratio['measured'])} of {ratio['target']:g}",
        f"samplers blocked {100 * found['blocked']:.0f} % of the time, critic_learner starved "
        f"{100 * found['starved']:.0f} %",
        f"a sampler makes {rate(found['sampler_makes_per_s'])} samples a second, the learners could take "
        f"{rate(found['learners_take_per_s'])}",
    ]
    for name, tried in found["tried_trained_per_s"].items():
        lines += [f"{name:<10} trained transitions/s"]
        lines += [f"{value:>10}{rate(trained):>23}" for value, trained in tried.items()]
    lines.append(_kept(plan, found))
    return "\n".join(lines)


def _kept(plan: Plan, found: Mapping[str, Any]) -> str:
    if not found["movable"]:
        fixes = "an on-policy algorithm" if plan.learning.on_policy else "the topology"
        fixes = "a fixed order" if plan.balance.in_order else fixes
        return f"{fixes} fixes the count, so nothing is kept"
    if not found["settled"]:
        return "the count had not settled yet, so nothing is kept: give it longer with --seconds"
    if found["disturbances"]:
        return "nothing is kept, since processes failed or started again, or messages were refused"
    try:
        file = machine.file_of(tuning.subject_of(plan))
    except NoHome as error:
        return f"nothing is kept: {error}"
    return f"kept in {file}" if found["kept"] else f"nothing is kept: {file} cannot be written"
