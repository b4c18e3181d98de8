"""Wall time to an evaluated return: a shipped topology against Stable-Baselines3's SAC, in turn on the same
cores.

    python -m venv .venv-peers
    .venv-peers/bin/pip install -c .ci/constraints.txt torch stable-baselines3 'gymnasium[mujoco]'
    python tests/benchmarks/time_to_return.py pendulum --target -200 --peer-python .venv-peers/bin/python

Ours is timed as a whole process, start-up and shutdown of all processes included; theirs from the start of
its process, its evaluations left out. Both evaluate ten deterministic episodes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spreeze_zmq import topology

PEER = Path(__file__).with_name("sb3_sac.py")


def ours(arguments, seed):
    """One run of the topology to the target."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "spreeze_zmq.commands.launch",
            arguments.topology,
            "--run-dir",
            f"{folder}/run",
        ]
        for override in (
            f"run.seed={seed}",
            f"run.stop.return={arguments.target}",
            f"run.stop.minutes={arguments.minutes}",
            *arguments.set,
        ):
            command += ["--set", override]
        began_s = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall_s = time.monotonic() - began_s
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    reached = next((e[0] for e in summary["evaluations"] if e[2] >= arguments.target), None)
    return {**summary, "wall_s": wall_s, "reached": reached is not None}


def theirs(arguments, seed):
    """One run of the peer to the target."""
    plan = topology.load(arguments.topology)
    command = [arguments.peer_python, str(PEER), "--env", plan.run.env, "--target", str(arguments.target)]
    command += [
        "--minutes",
        str(arguments.peer_minutes),
        "--every",
        str(arguments.peer_every),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def show(who, seed, result):
    """One line for one run."""
    outcome = "reached" if result["reached"] else "NOT reached"
    print(
        f"{who:6} seed {seed}: {result['wall_s']:7.1f} s, {outcome} (best {result['best_return']}),"
        f" {result['env_steps']} env steps",
        flush=True,
    )


def main():
    """Run in turn, print each, then the medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topology")
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--peer-seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--peer-minutes", type=float, default=12)
    parser.add_argument("--peer-every", type=int, default=500)
    parser.add_argument("--peer-python")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    results = {"ours": [], "theirs": []}
    for turn in range(max(len(arguments.seeds), len(arguments.peer_seeds))):
        for who, seeds, play in (("ours", arguments.seeds, ours), ("theirs", arguments.peer_seeds, theirs)):
            if turn < len(seeds) and (who == "ours" or arguments.peer_python):
                results[who].append(play(arguments, seeds[turn]))
                show(who, seeds[turn], results[who][-1])
    medians = {who: statistics.median(r["wall_s"] for r in runs) for who, runs in results.items() if runs}
    print(json.dumps(medians))
    if len(medians) == 2:
        print(f"theirs / ours: {medians['theirs'] / medians['ours']:.1f}")


if __name__ == "__main__":
    main()
