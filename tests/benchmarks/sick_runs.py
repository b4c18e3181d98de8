"""Runs that are made sick on purpose: seconds until each is named, and what is said of it.

    python tests/benchmarks/sick_runs.py [NAME ...] [--seconds 60]

The crowded machine has two busy loops for each core; the others want a quiet one.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.screen.terminal.words import finding_line

HERE = Path(__file__).parent
ATOMS = ["algorithm.num_atoms=51", "algorithm.v_min=-2000"]
#: Sickness -> the finding that names it, its environment, what is set.
SICK = {
    "learning rate of 1": ("learning_rate", "Healthy", ["algorithm.learning_rate=1.0"]),
    "rewards of 1e5": ("large_rewards", "LargeRewards", []),
    "observations of 1e-4": ("small_observations", "TinyObservations", []),
    "constant reward": ("constant_reward", "ConstantReward", []),
    "action mask ignored": ("action_mask", "Masked", []),
    "crowded machine": ("crowded", "Healthy", []),
    "v_max far too small": ("end_atoms", "Healthy", [*ATOMS, "algorithm.v_max=-1900"]),
    "limit as terminated": ("limit_as_termination", "LimitTerminates", []),
    "never-ending episodes": ("never_ending", "NeverEnding", []),
    "seed ignored": ("ignored_seed", "IgnoresSeed", []),
    "target entropy of -50": ("target_entropy", "Healthy", ["algorithm.target_entropy=-50.0"]),
    "temperature of 1e-7": (
        "temperature",
        "Healthy",
        ["algorithm.initial_temperature=1e-7", "algorithm.learn_temperature=false"],
    ),
    "actions saturated": (
        "saturated_actions",
        "Healthy",
        ["run.algorithm=td3", "algorithm.learning_rate=0.05"],
    ),
    "goal Dict flattened": ("goal_observation", "Goal", []),
    "wrapper statistics": ("wrapper_statistics", "own_statistics", []),
}


def named(run, name):
    """The journal's line that names a finding; None before."""
    path = run / "metrics.jsonl"
    lines = read_journal(path) if path.exists() else ()
    return next((row for row in lines if row["kind"] == "finding" and row["name"] == name), None)


def watch(finding, env, options, seconds, crowded):
    """Run a task until a finding is named; returns its line, all findings' names, and the last lines."""
    with tempfile.TemporaryDirectory(prefix="sick-") as folder, ExitStack() as stack:
        for _ in range(2 * os.cpu_count() if crowded else 0):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "spreeze_zmq.commands.launch", "--env", f"sick_environments:{env}"]
        for option in (*options, f"run.stop.minutes={seconds / 60}"):
            command += ["--set", option]
        launched = subprocess.Popen(
            [*command, "--run-dir", str(run)],
            cwd=HERE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while launched.poll() is None and named(run, finding) is None:
            time.sleep(0.5)
        row = named(run, finding)
        if launched.poll() is None:
            launched.send_signal(signal.SIGINT)
        words = launched.communicate()[1].strip().splitlines()
        lines = list(read_journal(run / "metrics.jsonl")) if row else []
        others = {line["name"] for line in lines if line["kind"] == "finding"} - {finding}
        summary = json.loads((run / "summary.json").read_text()) if row else {}
        kept = any(one["name"] == finding for one in summary.get("findings", ()))
        return row, others, kept, words


def main():
    """Print a row for each sickness."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SICK))
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    for name in arguments.names:
        finding, env, options = SICK[name]
        crowded = finding == "crowded"
        row, others, kept, words = watch(finding, env, options, arguments.seconds, crowded)
        when = f"{row['t_s']:6.1f} s" if row else "  never "
        said = finding_line(row) if row else " | ".join(words[:3])
        print(f"{name:24}{when}  {'kept' if kept else 'not kept':9}{said}", flush=True)
        print(f"{'':24}beside it: {', '.join(sorted(others)) or 'nothing'}", flush=True)


if __name__ == "__main__":
    main()
