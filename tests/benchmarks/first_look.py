"""Seconds from the command to the first look at a return, by this version and by another one in turn.

    git archive COMMIT | tar x -C before && pip install --no-deps --target then ./before
    python tests/benchmarks/first_look.py then pendulum=-200 halfcheetah=2000 --seeds 1 2 3 4 5

``FOLDER`` holds what ``pip install --target`` has put there; both versions use the other packages of this
interpreter. A look is an evaluation of ten episodes, on both sides, which every version writes into
``metrics.jsonl``. The clock is this script's, since versions start their own at different moments of a start.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import whole_runs

#: Seconds between two readings of a journal.
EVERY_S = 0.02


def new_lines(path, position):
    """The whole lines of a journal behind a position and the position behind them."""
    if not path.exists():
        return [], position
    with path.open("rb") as file:
        file.seek(position)
        *whole, rest = file.read().split(b"\n")
        return whole, file.tell() - len(rest)


def looks_at(line, target):
    """Whether a line of the journal is an evaluation of at least ``target``."""
    fields = json.loads(line) if b'"evaluation"' in line else {}
    found = fields.get("mean_return")
    return found is not None and found >= target


def command_of(task, run_dir, target, seed, minutes):
    """The command of a run to a return; looks of either version are of as many episodes."""
    stop = f"run.stop={{return = {target}, minutes = {minutes}}}"
    looks = f"components.evaluator.episodes={whole_runs.EPISODES}"
    return whole_runs.launch(task, run_dir, [f"run.seed={seed}", stop, looks])


def play(packages, task, target, seed, minutes):
    """One run: seconds to the first look, infinite where none came, and those of the whole command."""
    look_s, position = math.inf, 0
    with tempfile.TemporaryDirectory() as folder:
        run_dir, said = Path(folder, "run"), Path(folder, "said")
        command = command_of(task, run_dir, target, seed, minutes)
        env = {**os.environ, "PYTHONPATH": str(packages)} if packages else None
        began_s = time.monotonic()
        with (
            said.open("wb") as output,
            subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output) as process,
        ):
            while process.poll() is None:
                time.sleep(EVERY_S)
                lines, position = new_lines(run_dir / "metrics.jsonl", position)
                if any(looks_at(line, target) for line in lines):
                    look_s = min(look_s, time.monotonic() - began_s)
        whole_s = time.monotonic() - began_s
        if process.returncode:
            sys.exit(f"{' '.join(command)}\nended with exit code {process.returncode}:\n{said.read_text()}")
    return look_s, whole_s


def main():
    """A line for each run, its first look and its whole command; then the medians of each task."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("folder", type=Path, help="the other version")
    parser.add_argument("task", nargs="+", help="a topology and its return, such as pendulum=-200")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--minutes", type=float, default=12, help="a run that takes longer is cut")
    arguments = parser.parse_args()
    if not (arguments.folder / "spreeze_zmq").is_dir():
        parser.error(
            f"{arguments.folder} has no spreeze_zmq: pip install --no-deps --target {arguments.folder} ..."
        )
    sides = {"now": None, "then": arguments.folder.resolve()}
    for task in arguments.task:
        name, _, target = task.partition("=")
        times = {side: [] for side in sides}
        for turn, seed in enumerate(arguments.seeds):
            for side in list(sides)[:: 1 if turn % 2 else -1]:
                look_s, whole_s = play(sides[side], name, float(target), seed, arguments.minutes)
                times[side].append((look_s, whole_s))
                print(f"{name}, seed {seed}, {side}: {look_s:.1f} s, {whole_s:.1f} s", flush=True)
        for side, each in times.items():
            look_s, whole_s = map(statistics.median, zip(*each, strict=True))
            print(f"{name}, {side}: medians {look_s:.1f} s, {whole_s:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
