"""Return over wall time by the number of groups that share this machine's cores, in turn.

    python tests/benchmarks/groups_return.py halfcheetah 1 2 1 2 --minutes 3 --set run.seed=2
    python tests/benchmarks/groups_return.py napping 1 2 --minutes 2 --until -300
    python tests/benchmarks/groups_return.py napping 2 2 --vary groups.outer=average groups.outer=momentum

Each group has its share of the cores. The clock runs from the run's first env step, the return is that of
group 0's last training episodes. ``--vary`` gives a setting for each run in turn.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import nodes
from nodes_return import curve

TASKS = {
    "halfcheetah": ["halfcheetah"],
    "pendulum": ["pendulum"],
    "cartpole": ["cartpole_dqn"],
    # 4 environments whose steps wait 10 ms each, as for a slow device: cores are mostly free
    "napping": [
        "pendulum",
        "--set=run.env=tests.benchmarks.napping:make",
        "--set=run.env_kwargs={nap_s = 0.01}",
        "--set=components.sampler.envs=4",
        "--set=components.sampler.count=1",
    ],
}
#: Points of a curve that are shown.
SHOWN = 12


def timed(folder, count, arguments, more):
    """One run: its curve, what each group has done, and when the return was reached."""
    run = folder / "run"
    command = [sys.executable, "-m", "spreeze_zmq.commands.launch", *TASKS[arguments.task]]
    sets = [f"groups.count={count}", f"run.stop.minutes={arguments.minutes}", *arguments.set, *more]
    command += [f"--set={each}" for each in sets]
    done = subprocess.run([*command, f"--run-dir={run}"], capture_output=True, text=True, check=False)
    if not (run / "summary.json").exists():
        raise SystemExit(done.stdout + done.stderr)
    began_s = next((status["t_s"] for status in nodes.statuses(run) if status["env_steps"]), 0.0)
    seen = [(t_s - began_s, steps, found) for t_s, steps, found in curve(run)]
    summary = json.loads((run / "summary.json").read_text())
    reached = [t_s for t_s, _, found in seen if arguments.until is not None and found >= arguments.until]
    return {
        "groups": count,
        "set": more,
        "seconds": round(min(reached), 1) if reached else None,
        "returns": {round(t_s): round(found, 1) for t_s, _, found in seen[:: max(1, len(seen) // SHOWN)]},
        "best_return": summary["best_return"],
        "env_steps": summary["env_steps"],
        "updates": summary["critic_updates"],
        "of_each": summary.get("groups", {}),
        "code": done.returncode,
    }


def main():
    """Time each number of groups in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("counts", nargs="+", type=int, help="numbers of groups")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each run")
    parser.add_argument("--until", type=float, metavar="RETURN", help="of training: when it was reached")
    parser.add_argument("--set", action="append", default=[], help="as of spreeze-launch, for every run")
    parser.add_argument("--vary", nargs="*", default=[], help="a setting for each run in turn")
    arguments = parser.parse_args()
    for place, count in enumerate(arguments.counts):
        more = [arguments.vary[place % len(arguments.vary)]] if arguments.vary else []
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(timed(Path(folder), count, arguments, more)), flush=True)


if __name__ == "__main__":
    main()
