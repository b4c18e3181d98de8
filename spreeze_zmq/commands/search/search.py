"""``spreeze search TOPOLOGY --over KEY=VALUES``: runs with other settings, to find those that learn best.

Trials are runs of this machine, each of ``--minutes``, with values chosen by optuna (``pip install
'spreeze_zmq[search]'``). One that is behind half of the others at equal core-seconds, or at equal env steps
with ``--env-steps``, is ended early. The best ones and the topology as it is then run once more with other
seeds, and the highest mean of these counts. What the machine needs for a topology, such as a number of
samplers, is found by ``spreeze tune``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.errors import ComponentFailed, InputError
from spreeze_zmq.base.machine import program
from spreeze_zmq.commands import picture
from spreeze_zmq.commands.arguments import add_set, check_set_once
from spreeze_zmq.commands.search import outcome
from spreeze_zmq.commands.search.beside import CORES, Beside, beside
from spreeze_zmq.commands.search.checked import checked
from spreeze_zmq.commands.search.comparable import check_scores
from spreeze_zmq.commands.search.phases import Search, best_of
from spreeze_zmq.commands.search.space import Range, Varied, parse_all
from spreeze_zmq.commands.search.study import Study
from spreeze_zmq.commands.search.trials import Trials
from spreeze_zmq.plan.plan import Plan, facts_of
from spreeze_zmq.plan.releases import other_code, other_releases
from spreeze_zmq.plan.roles import LEARNERS, without_deadlines
from spreeze_zmq.plan.topology.document import read_source
from spreeze_zmq.run.curves import OWN_STEPS
from spreeze_zmq.run.folder import RunFolder

NUM_TRIALS = 20
#: Length of each run.
MINUTES = 2.0
#: Arguments that a search which is gone on with must have in common with what it was.
KEPT = ("set", "over", "minutes", "env_steps", "every")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "topology", metavar="TOPOLOGY", nargs="?", help="a .toml file, or the name of a shipped one"
    )
    parser.add_argument("--env", metavar="ID", help="search in this environment, without a topology file")
    parser.add_argument("--algorithm", metavar="NAME", help="as of spreeze-launch")
    parser.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="what is varied: algorithm.learning_rate=log:1e-4..1e-2, algorithm.n_step=1..5 or "
        "algorithm.tau=0.005,0.02; may be repeated (spreeze options lists the keys)",
    )
    add_set(parser)
    for name, default, text in (
        (
            "trials",
            None,
            f"runs with chosen values (default: {NUM_TRIALS}, or every combination with --every)",
        ),
        ("jobs", None, f"runs beside each other (default: one for every {CORES} cores)"),
        ("finalists", 2, "of the best trials, that run again with other seeds (default: %(default)s)"),
        ("repeats", 3, "seeds of each finalist, and of the topology as it is (default: %(default)s)"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", default=default, help=text)
    parser.add_argument(
        "--minutes", type=float, metavar="N", help=f"length of each run (default: {MINUTES:g})"
    )
    parser.add_argument(
        "--env-steps", type=int, metavar="N", help="end each run after N env steps, in place of --minutes"
    )
    parser.add_argument(
        "--every", action="store_true", help="try every combination of lists once, and end no run early"
    )
    parser.add_argument(
        "--study",
        type=Path,
        metavar="DIR",
        help="folder of the runs and the study; one that holds this search goes on (default: "
        "runs/search-NAME-TIME)",
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the returns over each key")


def main(arguments: argparse.Namespace) -> int:
    """Search, print what was found, and write the topology that did best.

    Raises:
        InputError: a mistake in the topology, in what is varied or in the numbers; optuna is missing.
        ComponentFailed: trials failed one after the other, or none was evaluated.
    """
    check_set_once(arguments)
    space = parse_all(arguments.over)
    _check_numbers(arguments, space)
    source, words = _source(arguments)
    by = "--minutes" if arguments.env_steps is None else "--env-steps"
    plans = checked(source, _stated(arguments), (by, _stop(arguments)), space)
    check_scores(plans, space)
    plan, states_device = plans[0], _states_device(source, arguments, space)
    at_once = beside(arguments.jobs, plans, states_device=states_device)
    folder = RunFolder.place(f"search-{plan.name}", arguments.study).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--study {folder}: {error.strerror}; choose another folder") from None
    about = {"topology": words} | {name: getattr(arguments, name) for name in KEPT}
    contents, *earlier = contents_of(plan)
    about |= {"contents": contents, "cores of a run": max(map(len, at_once.cpus))}
    code = plan.own_code
    study = Study(folder, space, about, code, plan.run.seed, every=arguments.every, earlier=earlier)
    search = _search(plan, study, words, at_once, folder, arguments)
    number = f"{len(at_once.cpus)} at a time" + (f" ({at_once.why})" if at_once.why else "")
    say(f"trials: {arguments.trials}, {number}, {study.num_over} of them before; in {folder}")
    if others := other_releases(study.packages) + other_code(study.own_code, plan.own_code):
        say(f"the search was begun with other code, by which scores may differ: {', '.join(others)}")
    try:
        search.try_values(arguments.trials)
        _report(study, space, arguments)
        finalists = search.repeat(arguments.finalists, arguments.repeats)
        outcome.show_finalists(finalists)
        best = best_of(finalists)
    except (KeyboardInterrupt, ComponentFailed) as error:
        search.runs.close()
        _report(study, space, arguments)
        how = "failed" if isinstance(error, ComponentFailed) else "interrupted"
        say(f"{how}; it goes on with: {_command()} --study {shlex.quote(str(folder))}")
        if isinstance(error, ComponentFailed):
            raise
        return 0
    finally:
        search.runs.close()
        study.close()
    if not best.values:
        say(f"nothing that was tried is better than {plan.name} as it is")
        return 0
    path = outcome.write(source, _stated(arguments), best.values, plan, Path.cwd(), _command())
    say(f"wrote {path}, with the values of {best.name}")
    return 0


def contents_of(plan: Plan) -> list[str]:
    """A digest of what a topology holds that decides what its runs learn and how fast, and the one that
    earlier releases made, of deadlines, too.
    """
    tables = json.loads(plan.to_json())
    digests = []
    for compared in (without_deadlines, dict):
        components = {
            role: [one["use"], one["count"], one["threads"], compared(one["options"])]
            for role, one in tables["components"].items()
        }
        text = json.dumps([facts_of(tables, compared), tables["groups"], components], sort_keys=True)
        digests.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return digests


def _search(
    plan: Plan,
    study: Study,
    words: Sequence[str],
    at_once: Beside,
    folder: Path,
    arguments: argparse.Namespace,
) -> Search:
    """The search, before its first run."""
    axis, length, cost = "wall_s", 60 * arguments.minutes, "core_s"
    if arguments.env_steps is not None:
        axis, length, cost = OWN_STEPS, arguments.env_steps, "env_steps"
    command = [*words, *(f"--set={word}" for word in (*arguments.set, _stop(arguments)))]
    return Search(
        study, Trials(command, at_once.cpus, at_once.gpus), folder, plan.run.seed, axis, length, cost
    )


def _stop(arguments: argparse.Namespace) -> str:
    """The override by which every run ends."""
    if arguments.env_steps is not None:
        return f"run.stop={{ env_steps = {arguments.env_steps} }}"
    return f"run.stop={{ minutes = {arguments.minutes} }}"


def _check_numbers(arguments: argparse.Namespace, space: Sequence[Varied]) -> None:
    """Raise InputError for numbers that are out of range, and settle the number of trials of ``--every``."""
    for name, least in (("trials", 1), ("repeats", 1), ("finalists", 1), ("jobs", 1), ("env_steps", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} {value}: at least {least} is expected")
    if arguments.minutes is not None and arguments.env_steps is not None:
        raise InputError(
            f"--minutes {arguments.minutes:g} --env-steps {arguments.env_steps}: each run ends after one of "
            "them; leave the other out"
        )
    arguments.minutes = MINUTES if arguments.minutes is None else arguments.minutes
    if not 0 < arguments.minutes < math.inf:
        raise InputError(f"--minutes {arguments.minutes:g}: a time above 0 is expected")
    if arguments.png and find_spec("matplotlib") is None:
        raise InputError("--png needs matplotlib: pip install 'spreeze_zmq[compare]'")
    if arguments.png:
        picture.check(arguments.png)
    if find_spec("tomli_w") is None:
        raise InputError("this needs tomli_w, which is not installed: pip install 'spreeze_zmq[search]'")
    if arguments.every:
        if ranges := [varied.key for varied in space if isinstance(varied, Range)]:
            raise InputError(f"--every: {ranges[0]} is a range, which has no end of values; write a list")
        if arguments.trials is not None:
            raise InputError(
                f"--trials {arguments.trials}: --every tries each combination once, as many as there are; "
                "leave one of them out"
            )
        arguments.trials = math.prod(len(varied.tried) for varied in space)
    arguments.trials = arguments.trials or NUM_TRIALS


def _source(arguments: argparse.Namespace) -> tuple[Any, list[str]]:
    """What is searched, for ``topology.load`` and as words of ``spreeze-launch``."""
    if (arguments.topology is None) == (arguments.env is None):
        got = "neither" if arguments.env is None else "both"
        raise InputError(f"expected a TOPOLOGY or --env ID, got {got}")
    chosen = [f"--algorithm={arguments.algorithm}"] if arguments.algorithm else []
    if arguments.topology is None:
        return {"run": {"env": arguments.env}}, [f"--env={arguments.env}", *chosen]
    return arguments.topology, [arguments.topology, *chosen]


def _stated(arguments: argparse.Namespace) -> list[str]:
    """Overrides of every run."""
    chosen = [f"run.algorithm={json.dumps(arguments.algorithm)}"] if arguments.algorithm else []
    return [*chosen, *arguments.set]


def _states_device(source: Any, arguments: argparse.Namespace, space: Sequence[Varied]) -> bool:
    """Whether the topology or what is varied names a learner's device."""
    tables = read_source(source, _stated(arguments)).values.get("components", {})
    stated = any(tables.get(role, {}).get("device", "auto") != "auto" for role in LEARNERS)
    return stated or any(varied.key.endswith(".device") for varied in space)


def _report(study: Study, space: Sequence[Varied], arguments: argparse.Namespace) -> None:
    """Print the trials so far, and draw them where asked for."""
    outcome.show_trials(study.rows(), space)
    if arguments.png:
        outcome.draw(study.rows(), space, arguments.png)
        say(f"wrote {arguments.png}")


def _command() -> str:
    """The command line of this search, without its folder."""
    words = sys.argv[2:]
    if "--study" in words:
        at = words.index("--study")
        words = words[:at] + words[at + 2 :]
    words = [word for word in words if not word.startswith("--study=")]
    return f"{program('spreeze')} {shlex.join(['search', *words])}"
