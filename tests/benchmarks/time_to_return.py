"""Wall time to an evaluated return: shipped topologies against Stable-Baselines3's SAC, in turn on the same
cores.

    python -m venv .venv-peers
    .venv-peers/bin/pip install -c .ci/constraints.txt torch stable-baselines3 'gymnasium[mujoco]'
    python tests/benchmarks/time_to_return.py hopper walker2d ant --target 1500 --minutes 12 --seeds 1 2 3 \\
        --peer-seeds 1 --peer-python .venv-peers/bin/python --json hopper_walker_ant.json
    python tests/benchmarks/time_to_return.py --json all.json --merge hopper_walker_ant.json pendulum.json

Ours is timed as a whole process, start-up and shutdown of all processes included; theirs from the start of
its process, its evaluations left out. Both are cut after the same minutes, and both evaluate by one rule: the
mean return of ten deterministic episodes. Who does not reach the return in them would have taken longer: its
time bounds the ratio. What stands in ``--json`` already is not run again.
"""

import argparse
import json
import math
import os
import statistics
import sys
from pathlib import Path

import whole_runs

from spreeze_zmq import topology

#: What makes two entries the same run, and what makes runs comparable.
TASK = ("topology", "target", "minutes", "settings")
RUN = (*TASK, "who", "seed")


def identity(run, keys=RUN):
    """A run's values of some keys, hashable."""
    return tuple(json.dumps(run[key]) for key in keys)


def merge(*lists):
    """Runs of several lists, each once; the first that has it counts."""
    merged = {}
    for run in (run for runs in lists for run in runs):
        merged.setdefault(identity(run), run)
    return list(merged.values())


def median_s(runs):
    """The median wall time, and whether it is one: where False, only that it is longer than that.

    The time of a run that did not reach the return is longer than that of all that did.
    """
    times = sorted(r["wall_s"] if r["reached"] else math.inf for r in runs)
    middle = statistics.median(times)
    if math.isfinite(middle):
        return middle, True
    return statistics.median(r["wall_s"] for r in runs), False


def ratio(ours, theirs):
    """Of the median times, in words; an inequality where one side did not reach the return."""
    (our_s, our_end), (their_s, their_end) = median_s(ours), median_s(theirs)
    found, kept = their_s / our_s, "min without reaching it"
    if our_end and their_end:
        return f"theirs / ours: {found:.1f}"
    if our_end:
        return f"theirs / ours: at least {found:.1f} ({their_s / 60:.1f} {kept} / {our_s:.1f} s)"
    if their_end:
        return f"theirs / ours: at most {found:.1f} ({their_s:.1f} s / {our_s / 60:.1f} {kept})"
    return "theirs / ours: unknown, neither has reached it"


def line(run):
    """One run in words."""
    best = "none evaluated" if run["best_return"] is None else f"best {run['best_return']:.0f}"
    outcome = f"reached {run['target']:g}" if run["reached"] else f"{run['target']:g} NOT reached"
    return (
        f"{run['topology']:12} {run['who']:6} seed {run['seed']}: {run['wall_s']:7.1f} s, {outcome} ({best}),"
        f" {run['env_steps']:,} env steps, {run['trained_transitions']:,} trained"
    )


def report(runs):
    """Lines for each task: its runs, the medians, and their ratio."""
    said = []
    for task in dict.fromkeys(identity(run, TASK) for run in runs):
        sides = {who: [r for r in runs if identity(r, TASK) == task and r["who"] == who] for who in SIDES}
        some = next(run for side in sides.values() for run in side)
        said += [
            f"{some['topology']} ({some['env']}) to {some['target']:g}, cut after {some['minutes']:g} min"
        ]
        for who, side in sides.items():
            if side:
                seconds, is_end = median_s(side)
                reached = sum(run["reached"] for run in side)
                times = f"{'' if is_end else 'more than '}{seconds:.1f} s"
                said += [f"  {who:6} median {times}; {reached} of {len(side)} reached it"]
                said += [f"    {line(run)}" for run in sorted(side, key=lambda run: run["seed"])]
        if all(sides.values()):
            said += [f"  {ratio(*sides.values())}"]
    return [*said, whole_runs.SAME_RULE]


def play_ours(arguments, name, seed):
    """Our run of a topology to the target."""
    overrides = (
        f"run.seed={seed}",
        f"run.stop={{return={arguments.target}, minutes={arguments.minutes}}}",
        *arguments.set,
    )
    return whole_runs.ours(name, overrides)


def play_theirs(arguments, name, seed):
    """The peer's run on a topology's environment to the target."""
    return whole_runs.theirs(
        arguments.peer_python,
        topology.load(name).run.env,
        seed,
        arguments.minutes,
        every=arguments.peer_every,
        threads=arguments.peer_threads,
        target=arguments.target,
    )


SIDES = {"ours": play_ours, "theirs": play_theirs}


def wanted(arguments):
    """The runs asked for, in the order of their turns; without results."""
    sides = {"ours": arguments.seeds, "theirs": arguments.peer_seeds if arguments.peer_python else []}
    for name in arguments.topology:
        for turn in range(max(map(len, sides.values()))):
            for who, seeds in sides.items():
                if turn < len(seeds):
                    task = {"topology": name, "target": arguments.target, "minutes": arguments.minutes}
                    yield {**task, "settings": arguments.set, "who": who, "seed": seeds[turn]}


def main():
    """Run in turn what is missing, print each, then the medians and their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topology", nargs="*")
    parser.add_argument("--target", type=float, help="the return")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--peer-seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--minutes", type=float, default=12, help="after which either side is cut")
    parser.add_argument("--peer-every", type=int, default=500, help="steps between the peer's evaluations")
    parser.add_argument("--peer-threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument(
        "--peer-python",
        type=whole_runs.interpreter,
        help="interpreter that has stable_baselines3; without it ours alone",
    )
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="of our runs")
    parser.add_argument("--json", type=Path, help="where to keep every run")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="files whose runs join the report")
    arguments = parser.parse_args()
    if arguments.topology and arguments.target is None:
        parser.error("--target is needed to run something")
    files = [path for path in (arguments.json, *arguments.merge) if path is not None]
    runs = merge(*(json.loads(path.read_text()) for path in files if path != arguments.json or path.exists()))
    well = True
    for run in wanted(arguments):
        if identity(run) in map(identity, runs):
            continue
        try:
            result = SIDES[run["who"]](arguments, run["topology"], run["seed"])
        except whole_runs.RunFailed as error:
            well = False
            print(f"FAILED: {error}", file=sys.stderr, flush=True)
            continue
        best = result["best_return"]
        runs.append({**result, **run, "reached": best is not None and best >= run["target"]})
        print(line(runs[-1]), flush=True)
        if arguments.json:
            whole_runs.write_whole(arguments.json, runs)
    if arguments.json:
        whole_runs.write_whole(arguments.json, runs)
    print("\n".join(report(runs)))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
