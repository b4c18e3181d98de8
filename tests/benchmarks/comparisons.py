"""Runs the entries of ``comparisons.toml``: our topology and Stable-Baselines3 in turn on the same cores.

Used by ``time_to_return.py`` and ``learning_curves.py``, and by ``contest.py`` for its tasks. Each finished
run leaves a JSON file in the folder ``--out`` and is not run again: the same command continues where it was
interrupted. The peer needs a virtual environment of its own:

    python -m venv .venv-peers
    .venv-peers/bin/pip install -c .ci/constraints.txt torch stable-baselines3 'gymnasium[mujoco]'
"""

import json
import os
import queue
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import whole_runs

from spreeze_zmq.base.files import file_name

TABLE = Path(__file__).with_name("comparisons.toml")
SIDES = ("ours", "theirs")


@dataclass(frozen=True)
class Comparison:
    """An entry of ``comparisons.toml``, where a comment describes each field."""

    ours: str
    env: str
    algorithm: str
    minutes: float
    target: float | None = None
    env_steps: int | None = None
    trained_transitions: int | None = None
    set: list[str] = field(default_factory=list)
    settings: dict = field(default_factory=dict)
    every: int = 500
    threads: int | None = None


def load(path=TABLE):
    """The entries of a table by name."""
    return {name: Comparison(**entry) for name, entry in tomllib.loads(path.read_text()).items()}


def add_options(parser, *, bare=False):
    """The options of all scripts that run these tasks; ``bare``: ids of environments are tasks, too."""
    choices, known = (None, "or a Gymnasium id") if bare else (load(), "")
    what = f"{', '.join(load())} {known}".rstrip()
    parser.add_argument("comparison", nargs="+", choices=choices, metavar="comparison", help=what)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--out", type=Path, default=Path("comparisons"), help="folder of all results, comparisons by default"
    )
    parser.add_argument("--cores", type=int, nargs="+", help="ids of the cores to use; all by default")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="of our runs")


def parser(description):
    """The options that both scripts have."""
    parser = whole_runs.parser(description)
    add_options(parser)
    parser.add_argument("--peer-seeds", type=int, nargs="*", help="those of --seeds by default")
    parser.add_argument(
        "--minutes", type=float, help="a run that takes longer is cut; the entry's by default"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, each on its share of the cores")
    parser.add_argument(
        "--peer-python",
        type=whole_runs.interpreter,
        help="interpreter that has stable_baselines3; without it only ours is run",
    )
    return parser


def parse(parser):
    """The command line, with the cores filled in."""
    arguments = parser.parse_args()
    arguments.cores = arguments.cores or sorted(os.sched_getaffinity(0))
    if not 1 <= arguments.jobs <= len(arguments.cores):
        parser.error(f"--jobs: between 1 and the {len(arguments.cores)} cores, got {arguments.jobs}")
    return arguments


def wanted(arguments, stop):
    """Every requested run, in the order of their turns, without its result.

    Args:
        arguments: of the command line.
        stop: a function from an entry to a dictionary of the stop conditions of its runs, beside the minutes.
    """
    theirs = arguments.seeds if arguments.peer_seeds is None else arguments.peer_seeds
    for name in arguments.comparison:
        entry = load()[name]
        ends = {**stop(entry), "minutes": arguments.minutes or entry.minutes}
        for turn in zip_longest(arguments.seeds, theirs if arguments.peer_python else []):
            for who, seed in zip(SIDES, turn, strict=True):
                if seed is not None:
                    settings = [*entry.set, *arguments.set] if who == "ours" else entry.settings
                    yield {"comparison": name, "who": who, "seed": seed, "stop": ends, "settings": settings}


def play(run, arguments, cores, overrides):
    """One run of either side to its end; ``overrides`` are those of all our runs."""
    entry, stop = load()[run["comparison"]], run["stop"]
    if run["who"] == "ours":
        ends = ", ".join(f"{name} = {value}" for name, value in stop.items())
        overrides = (f"run.seed={run['seed']}", f"run.stop={{{ends}}}", *overrides, *run["settings"])
        result = whole_runs.ours(entry.ours, overrides, cores)
    else:
        result = whole_runs.theirs(
            arguments.peer_python,
            entry.algorithm,
            entry.env,
            run["seed"],
            run["settings"],
            stop,
            every=entry.every,
            threads=min(entry.threads or len(cores), len(cores)),
            cores=cores,
        )
    return {**result, **run, "cores": cores}


def file_of(folder, run):
    """The file of a run's result."""
    what, value = next(iter(run["stop"].items()))
    who = file_name(run["who"])
    return folder / f"{file_name(run['comparison'])}-{who}-{what}{value:g}-seed{run['seed']}.json"


def finished(folder, run):
    """The result of an earlier call; None where the run is missing.

    Raises:
        SystemExit: the file is of a run with other settings.
    """
    path = file_of(folder, run)
    if not path.exists():
        return None
    result = json.loads(path.read_text())
    for key in run:
        if result[key] != run[key]:
            sys.exit(f"{path} holds a run with {key} {result[key]}, but {run[key]} was asked for")
    return result


def play_all(arguments, stop, line, overrides=()):
    """Run both sides of all comparisons; see :func:`play_missing`."""

    def play_one(run, cores):
        return play(run, arguments, cores, overrides)

    return play_missing(arguments, list(wanted(arguments, stop)), play_one, line)


def play_missing(arguments, runs, play, line):
    """Run what is missing and print a line for each; returns all results, and whether all runs succeeded.

    Args:
        arguments: of the command line.
        runs: in the order of their turns, each without its result.
        play: a function from a run and the cores that it may use to its result.
        line: from a result to words.
    """
    arguments.out.mkdir(parents=True, exist_ok=True)
    shares = queue.SimpleQueue()
    for job in range(arguments.jobs):
        shares.put(arguments.cores[job :: arguments.jobs])

    def one(run):
        cores = shares.get()
        try:
            result = play(run, cores)
        except whole_runs.RunFailed as error:
            print(f"FAILED: {error}", file=sys.stderr, flush=True)
            return False
        finally:
            shares.put(cores)
        whole_runs.write_whole(file_of(arguments.out, run), result)
        print(line(result), flush=True)
        return True

    missing = [run for run in runs if finished(arguments.out, run) is None]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        succeeded = all(list(pool.map(one, missing)))
    return [result for run in runs if (result := finished(arguments.out, run)) is not None], succeeded


def by_side(results):
    """``(comparison, its entry, {side: its results})`` for each comparison, in the order of the results."""
    for name in dict.fromkeys(result["comparison"] for result in results):
        own = [result for result in results if result["comparison"] == name]
        yield name, load()[name], {who: [r for r in own if r["who"] == who] for who in SIDES}


def publish(folder, name, rows, text):
    """Print a Markdown table, and save it and its figures as JSON."""
    whole_runs.write_whole(folder / f"{name}.json", rows)
    (folder / f"{name}.md").write_text(text + "\n")
    print(text)
