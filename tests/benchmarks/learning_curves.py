"""Is learning right before it is fast? Evaluated return over trained transitions, ours beside
Stable-Baselines3's SAC, up to the same number of transitions trained on (batch size x gradient steps).

    python -m venv .venv-peers
    .venv-peers/bin/pip install -c .ci/constraints.txt torch stable-baselines3 'gymnasium[mujoco]'
    python tests/benchmarks/learning_curves.py halfcheetah hopper walker2d --trained 5000000 --seeds 1 2 3 \\
        --peer-python .venv-peers/bin/python --jobs 2 --out learning_curves

Ours by its shipped topology, theirs with its defaults; both are scored by the mean return of ten
deterministic episodes. Each finished run leaves a JSON file in the folder and is not run again: the same
command goes on where it was left, and draws again. Wall time is told but not compared: with ``--jobs``
several runs go at once, each held to a core of its own, and our evaluator gets more of the machine than its
default. Needs matplotlib for the PNG, which nothing else here does (pip install matplotlib).
"""

import argparse
import json
import os
import queue
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import whole_runs

from spreeze_zmq import topology

SIDES = {"ours": "tab:blue", "theirs": "tab:orange"}
LABELS = {"ours": "spreeze_zmq", "theirs": "Stable-Baselines3 SAC"}
#: Points of trained transitions at which curves are joined.
GRID = 200


def play(arguments, run, core):
    """One run of either side up to the budget."""
    name, seed = run["topology"], run["seed"]
    if run["who"] == "ours":
        stop = f"trained_transitions={arguments.trained}, minutes={arguments.minutes}"
        overrides = (
            f"run.seed={seed}",
            f"run.stop={{{stop}}}",
            f"components.evaluator.cost_share={whole_runs.EVALUATION_SHARE}",
            *arguments.set,
        )
        return whole_runs.ours(name, overrides, core)
    return whole_runs.theirs(
        arguments.peer_python,
        topology.load(name).run.env,
        seed,
        arguments.minutes,
        every=arguments.peer_every,
        threads=1 if core is not None else min(2, len(os.sched_getaffinity(0))),
        core=core,
        trained=arguments.trained,
    )


def wanted(arguments):
    """Every run asked for, without its result."""
    sides = ["ours", *(["theirs"] if arguments.peer_python else [])]
    for seed in arguments.seeds:
        for name in arguments.topology:
            for who in sides:
                settings = arguments.set if who == "ours" else []
                yield {
                    "topology": name,
                    "who": who,
                    "seed": seed,
                    "budget": arguments.trained,
                    "settings": settings,
                }


def file_of(folder, run):
    """Where a run's result is kept."""
    return folder / f"{Path(run['topology']).stem}-{run['who']}-{run['budget']}-seed{run['seed']}.json"


def finished(folder, run):
    """The result that is there already; None where it has to be run.

    Raises:
        SystemExit: the file is of a run with other settings.
    """
    path = file_of(folder, run)
    if not path.exists():
        return None
    result = json.loads(path.read_text())
    if {key: result[key] for key in run} != run:
        sys.exit(f"{path} holds a run with --set {result['settings']}, asked for is {run['settings']}")
    return result


def play_all(arguments, runs):
    """Run those that are missing, so many at once; whether all have ended well."""
    cores = queue.SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[: arguments.jobs]:
        cores.put(core if arguments.jobs > 1 else None)

    def one(run):
        core = cores.get()
        try:
            result = {**play(arguments, run, core), **run}
        except whole_runs.RunFailed as error:
            print(f"FAILED: {error}", file=sys.stderr, flush=True)
            return False
        finally:
            cores.put(core)
        whole_runs.write_whole(file_of(arguments.out, run), result)
        print(line(result), flush=True)
        return True

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return all(list(pool.map(one, runs)))


def final_return(result):
    """The mean of the evaluations in the last tenth of what was trained on, one alone being noisy; the last
    one where there is none; None without any.
    """
    curve = result["curve"]
    late = [mean for trained, mean in curve if trained >= 0.9 * result["trained_transitions"]]
    return statistics.fmean(late) if late else (curve[-1][1] if curve else None)


def line(result):
    """One run in words."""
    final, trained = final_return(result), f"{result['trained_transitions']:,} trained"
    cut = " (CUT before its budget)" if result["trained_transitions"] < result["budget"] else ""
    return (
        f"{result['topology']} {result['who']} seed {result['seed']}: return"
        f" {'none' if final is None else f'{final:.0f}'} after {trained}{cut},"
        f" {result['env_steps']:,} env steps, {result['wall_s']:.0f} s"
    )


def median_curve(results):
    """The median over seeds on a common grid, up to what all have trained: two arrays of length ``GRID``."""
    trained = min(result["trained_transitions"] for result in results)
    curves = [whole_runs.on_grid(result["curve"], trained, GRID) for result in results]
    return np.linspace(0, trained, GRID + 1)[1:], np.median(curves, axis=0)


def table(results):
    """A row for each task and side: final returns of all seeds, and the medians of them and of their cost."""
    rows = []
    for name in dict.fromkeys(result["topology"] for result in results):
        for who in SIDES:
            side = [r for r in results if (r["topology"], r["who"]) == (name, who) and r["curve"]]
            if side:
                finals = [final_return(result) for result in side]
                medians = {
                    f"median_{key}": statistics.median(result[key] for result in side)
                    for key in ("trained_transitions", "env_steps", "wall_s")
                }
                rows.append(
                    {
                        "topology": name,
                        "env": side[0]["env"],
                        "who": who,
                        "seeds": [result["seed"] for result in side],
                        "final_returns": finals,
                        "median_final_return": statistics.median(finals),
                        **medians,
                    }
                )
    return rows


def as_text(rows):
    """The rows as a table of Markdown."""
    said = ["| task | who | final returns | median | trained | env steps | wall time |", "|---" * 7 + "|"]
    for row in rows:
        finals = ", ".join(f"{value:.0f}" for value in row["final_returns"])
        said.append(
            f"| {row['env']} | {LABELS[row['who']]} | {finals} | {row['median_final_return']:.0f} |"
            f" {row['median_trained_transitions']:,.0f} | {row['median_env_steps']:,.0f} |"
            f" {row['median_wall_s']:.0f} s |"
        )
    return "\n".join(said)


def draw(results, path):
    """One panel a task: each seed thin, the median thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(result["topology"] for result in results))
    figure, panels = pyplot.subplots(1, len(names), figsize=(6 * len(names), 4.5), squeeze=False)
    for name, axes in zip(names, panels[0], strict=True):
        for who, colour in SIDES.items():
            side = [r for r in results if (r["topology"], r["who"]) == (name, who) and r["curve"]]
            for result in side:
                axes.plot(*np.array(result["curve"]).T, color=colour, alpha=0.35, linewidth=1)
                axes.set_title(result["env"])
            if side:
                label = f"{LABELS[who]}, median of {len(side)}"
                axes.plot(*median_curve(side), color=colour, linewidth=2.5, label=label)
        axes.set(xlabel="trained transitions", ylabel="evaluated return")
        axes.legend(loc="best", fontsize="small")
    whole_runs.draw(figure, path)


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topology", nargs="+")
    parser.add_argument("--trained", type=int, default=5_000_000, help="transitions, in each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, required=True, help="folder of results, table and picture")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each on a core of its own")
    parser.add_argument("--minutes", type=float, default=60, help="a run that takes longer is cut")
    parser.add_argument(
        "--peer-python",
        type=whole_runs.interpreter,
        help="interpreter that has stable_baselines3; without it ours alone",
    )
    parser.add_argument("--peer-every", type=int, default=500, help="steps between the peer's evaluations")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="of our runs")
    arguments = parser.parse_args()
    if not 1 <= arguments.jobs <= len(os.sched_getaffinity(0)):
        parser.error(f"--jobs: between 1 and the {len(os.sched_getaffinity(0))} cores, got {arguments.jobs}")
    return arguments


def main():
    """Run what is missing, then table and picture of everything asked for."""
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    runs = list(wanted(arguments))
    well = play_all(arguments, [run for run in runs if finished(arguments.out, run) is None])
    results = [result for run in runs if (result := finished(arguments.out, run)) is not None]
    rows = table(results)
    whole_runs.write_whole(arguments.out / "table.json", rows)
    (arguments.out / "table.md").write_text(as_text(rows) + "\n")
    print(as_text(rows))
    print(f"{whole_runs.SAME_RULE}; final: those in the last tenth of a run")
    if find_spec("matplotlib") is None:
        print("no picture: matplotlib is missing; with it the same command draws, and runs nothing again")
    elif results:
        draw(results, arguments.out / "learning_curves.png")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
