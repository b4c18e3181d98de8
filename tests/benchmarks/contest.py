"""Several contestants at the same task, in turn on the same cores, for the same minutes: returns over env
steps, transitions trained on, wall time and core-seconds, and the rates.

    python tests/benchmarks/contest.py ablation halfcheetah --minutes 3 --seeds 1 2 3 --out ablation
    python tests/benchmarks/contest.py peers halfcheetah hopper --minutes 5 --seeds 101 102 103 --out peers \\
        --peer sb3=.venv-peers/bin/python --peer sbx=.venv-peers/bin/python
    python tests/benchmarks/contest.py untuned HumanoidStandup-v5 BipedalWalker-v3 --out untuned --peer ...

Who takes part is in ``contest.toml``, the tasks are those of ``comparisons.toml``. In ``untuned``, and in
``choices`` of discrete actions, nobody has more than defaults, and any environment is a task. They take
turns, seed by seed, and who begins moves on by one with each. Ours count from the command on, with their
evaluations; the peers' evaluations are left out of their time. ``others`` is the share of the cores that
other programs took beside the run: where it is more than a few percent, no rate here is one to quote.
Results in ``--out`` are not run again. The peers need interpreters of their own; CleanRL's script wants
Gymnasium 0.29:

    python -m venv .venv-peers
    .venv-peers/bin/pip install -c .ci/constraints.txt torch stable-baselines3 sbx-rl 'gymnasium[mujoco]'
"""

import dataclasses
import json
import os
import statistics
import sys
import time
import tomllib
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import comparisons
import four_axes
import whole_runs

from spreeze_zmq.base.usage import busy_cpu_s
from spreeze_zmq.plan import topology

TABLE = Path(__file__).with_name("contest.toml")
#: Env steps between two evaluations of a peer.
EVERY = 2000
#: Places before those of published curves, which begin late.
EARLIER = {
    "env_steps": (3e3, 1e4, 3e4),
    "trained_transitions": (5.12e5, 1.536e6),
    "wall_s": (15, 30),
    "core_s": (15, 30),
}


@dataclass(frozen=True)
class Contestant:
    """An entry of ``contest.toml``, where a comment describes each field."""

    plain: bool = False
    set: list[str] = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    program: str = ""
    words: list[str] = field(default_factory=list)
    settings: str = ""
    version: str = ""


def load(path=TABLE):
    """``{contest: {name: contestant}}`` of a table."""
    tables = tomllib.loads(path.read_text())
    return {
        contest: {name: Contestant(**entry) for name, entry in entries.items()}
        for contest, entries in tables.items()
    }


def wanted(arguments, contestants):
    """Every requested run, in the order of their turns, without its result."""
    for comparison in arguments.comparison:
        for turn, seed in enumerate(arguments.seeds):
            first = turn % len(contestants)
            for who in (*contestants, *contestants)[first : first + len(contestants)]:
                settings = dataclasses.asdict(contestants[who])
                if not contestants[who].program:
                    settings["set"] = [*settings["set"], *arguments.set]
                stop = {"minutes": arguments.minutes}
                yield {"comparison": comparison, "who": who, "seed": seed, "stop": stop, "settings": settings}


def task_of(name):
    """A task of ``comparisons.toml``, or an environment with nothing stated of it."""
    bare = comparisons.Comparison(ours="", env=name, algorithm="", minutes=0)
    return comparisons.load().get(name, bare)


def settings_of(entry, overrides):
    """The environments and updates of Stable-Baselines3's SAC that have the topology's replay ratio."""
    plan = topology.load(entry.ours, [*entry.set, *overrides])
    envs = plan.components["sampler"].options["envs"]
    updates = envs * plan.balance.replay_ratio / plan.algorithm["batch_size"]
    pace = {"train_freq": max(1, round(1 / updates)), "gradient_steps": max(1, round(updates))}
    return {"n_envs": envs, **pace}


def command_of(run, contestant, entry, peers, overrides):
    """The command of a peer's run."""
    env = f"{entry.env.rpartition('-')[0]}-{contestant.version}" if contestant.version else entry.env
    command = [peers[run["who"]], str(TABLE.with_name(contestant.program)), *contestant.words, env]
    command += ["--seed", str(run["seed"]), "--minutes", str(run["stop"]["minutes"])]
    if contestant.program == whole_runs.PEER.name:
        settings = settings_of(entry, overrides) if contestant.settings else {}
        command += ["--every", str(EVERY), "--settings", json.dumps(settings)]
    return command


def play(run, contestant, arguments, cores):
    """One run to its end, with the share of the cores that programs beside it took."""
    entry = task_of(run["comparison"])
    began_s, busy_s = time.monotonic(), busy_cpu_s()
    if contestant.program:
        command = command_of(run, contestant, entry, arguments.peer, arguments.set)
        output, spent_s = whole_runs.spent(command, cores)
        result = json.loads(output.splitlines()[-1])
    else:
        task = f"--env={entry.env}" if contestant.plain else entry.ours
        stop = f"run.stop={{minutes = {run['stop']['minutes']}}}"
        sets = [f"run.seed={run['seed']}", stop, *([] if contestant.plain else entry.set)]
        paths = [str(TABLE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # of ablated.py
        environment = {"PYTHONPATH": os.pathsep.join(paths), **contestant.environment}
        result = whole_runs.ours(task, [*sets, *run["settings"]["set"]], cores, environment)
        spent_s = result["core_s"]
    span_s = (time.monotonic() - began_s) * len(cores)
    others = max(0.0, busy_cpu_s() - busy_s - spent_s) / span_s
    return {**result, **run, "cores": cores, "others": others}


def rounded(number):
    """A return in words, small ones to two places."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2f}"


def line(result):
    """One run in words."""
    last = rounded(result["returns"][-1]) if result["returns"] else "none"
    return (
        f"{result['comparison']} {result['who']} seed {result['seed']}: return {last} after"
        f" {result['wall_s']:.0f} s, {result['env_steps']:,} env steps,"
        f" {result['trained_transitions']:,} trained,"
        f" {result['core_s']:.0f} core-seconds; others {100 * result['others']:.0f} %"
    )


def rates(results):
    """The rows of a Markdown table: what each contestant made of its time, medians over its seeds."""
    rows = [
        "| task | who | seeds | transitions/s | env steps/s | cores | last return | worst | best | others |"
    ]
    rows += ["|---" * 10 + "|"]
    for comparison, who in dict.fromkeys((each["comparison"], each["who"]) for each in results):
        own = [each for each in results if (each["comparison"], each["who"]) == (comparison, who)]
        middle = {
            name: statistics.median(each[name] / each["wall_s"] if each["wall_s"] else 0.0 for each in own)
            for name in ("trained_transitions", "env_steps", "core_s")
        }
        last = [each["returns"][-1] for each in own if each["returns"]]
        best = [each["best_return"] for each in own if each["best_return"] is not None]
        columns = (statistics.median, last), (min, last), (statistics.median, best)
        shown = " | ".join(rounded(found(of)) if of else "none" for found, of in columns)
        rows.append(
            f"| {comparison} | {who} | {len(own)} | {middle['trained_transitions']:,.0f} |"
            f" {middle['env_steps']:,.0f} | {middle['core_s']:.2f} | {shown} |"
            f" {100 * max(each['others'] for each in own):.0f} % |"
        )
    return rows


def lines_of(results):
    """A line for each contestant at each task."""
    groups = {}
    for result in results:
        if (curve := whole_runs.curve_of(result)) is not None:
            groups.setdefault((result["who"], result["env"]), []).append(curve)
    return [four_axes.line_of(who, env, curves) for (who, env), curves in groups.items()]


def as_text(results):
    """The rates, then a table for each axis."""
    lines = lines_of(results)
    places = {axis: (*EARLIER[axis], *later) for axis, later in four_axes.PLACES.items()}
    found = [rates(results), *(four_axes.table(lines, axis, places[axis]) for axis in places)]
    return "\n\n".join("\n".join(rows) for rows in found if rows)


def interpreter(text):
    """The type of ``--peer``."""
    name, _, python = text.partition("=")
    return name, whole_runs.interpreter(python)


def parse():
    """The command line: who takes part, too."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("contest", choices=load())
    comparisons.add_options(parser, bare=True)
    parser.add_argument("--minutes", type=float, default=3, help="of each run (default: %(default)s)")
    parser.add_argument("--who", action="append", metavar="NAME", help="only these; all by default")
    parser.add_argument("--peer", action="append", type=interpreter, default=[], metavar="NAME=PYTHON")
    arguments = parser.parse_args()
    arguments.cores = arguments.cores or sorted(os.sched_getaffinity(0))
    arguments.jobs, arguments.peer = 1, dict(arguments.peer)
    contestants, tasks = load()[arguments.contest], comparisons.load()
    of_topologies = not all(one.plain or (one.program and not one.settings) for one in contestants.values())
    if strange := [name for name in arguments.comparison if of_topologies and name not in tasks]:
        parser.error(f"{', '.join(strange)}: expected {', '.join(tasks)}")
    if others := [name for name in arguments.comparison if task_of(name).algorithm not in ("SAC", "")]:
        parser.error(f"{', '.join(others)}: all contestants are of SAC")
    if unknown := [name for name in (*(arguments.who or ()), *arguments.peer) if name not in contestants]:
        parser.error(f"{', '.join(unknown)}: expected {', '.join(contestants)}")
    return arguments, {name: contestants[name] for name in arguments.who or contestants}


def main():
    """Run in turn what is missing, then print the tables and draw."""
    arguments, contestants = parse()
    os.sched_setaffinity(0, arguments.cores)  # whose load is measured
    without = [name for name, one in contestants.items() if one.program and name not in arguments.peer]
    if without:
        print(f"without --peer NAME=PYTHON, left out: {', '.join(without)}", file=sys.stderr)
    taking_part = {name: one for name, one in contestants.items() if name not in without}

    def play_one(run, cores):
        return play(run, taking_part[run["who"]], arguments, cores)

    runs = list(wanted(arguments, taking_part))
    results, succeeded = comparisons.play_missing(arguments, runs, play_one, line)
    comparisons.publish(arguments.out, arguments.contest, results, as_text(results))
    if find_spec("matplotlib") is not None and lines_of(results):
        four_axes.draw(lines_of(results), arguments.out / f"{arguments.contest}.png")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
