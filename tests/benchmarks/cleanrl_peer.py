"""One run of CleanRL's SAC as it is, as one JSON line like that of ``sb3.py``.

    CLEANRL=CHECKOUT .venv-cleanrl/bin/python tests/benchmarks/cleanrl_peer.py HalfCheetah-v4 --minutes 5

The script prints the return of each training episode; the mean of ten in a row stands for an evaluation, at
the moment when the last of them is read. They are played with sampled actions, not with the mean ones.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

#: Training episodes whose mean is one return.
EPISODES = 10
#: Of the script: env steps before the first update, and its batch; an update for each env step.
STARTS, BATCH = 5000, 256
EPISODE = re.compile(r"global_step=(\d+), episodic_return=\[?(-?[\d.]+(?:e[+-]?\d+)?)")


def episode(line):
    """``(env steps, return)`` of a line that tells of an episode; None for any other."""
    found = EPISODE.match(line)
    return found and (int(found[1]), float(found[2]))


def trained(steps):
    """Transitions trained on after so many env steps."""
    return BATCH * max(0, steps - STARTS)


def cpu_s(pid):
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def played(command, seconds, env=None):
    """Run a script until it ends, or for some seconds; returns of each episode ``(wall_s, core_s, env steps,
    return)``.

    Raises:
        SystemExit: it has failed.
    """
    began_s, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:  # where it leaves its own figures
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=folder)
        end = threading.Timer(seconds, process.terminate)
        end.start()
        for line in process.stdout:
            if (ended := episode(line)) is not None:
                found.append((time.monotonic() - began_s, cpu_s(process.pid), *ended))
        end.cancel()
        if process.wait() not in (0, -signal.SIGTERM):
            sys.exit(f"{' '.join(command)} ended with exit code {process.returncode}")
    return found


def result_of(episodes):
    """The returns of groups of episodes over each axis, and what the run cost up to the last one."""
    groups = [episodes[end - EPISODES : end] for end in range(EPISODES, len(episodes) + 1, EPISODES)]
    walls, spent, steps, _ = zip(*(group[-1] for group in groups), strict=True) if groups else ((),) * 4
    over = {"wall_s": walls, "env_steps": steps, "trained_transitions": [trained(each) for each in steps]}
    last = episodes[-1] if episodes else (0.0, 0.0, 0, 0.0)
    cost = {
        "wall_s": last[0],
        "core_s": last[1],
        "env_steps": last[2],
        "trained_transitions": trained(last[2]),
    }
    returns = [sum(each[3] for each in group) / EPISODES for group in groups]
    return {**cost, "over": {**over, "core_s": spent}, "returns": returns}


def main():
    """Run the script and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env", help="a Gymnasium id")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--checkout", type=Path, default=os.environ.get("CLEANRL"), help="by default $CLEANRL"
    )
    arguments = parser.parse_args()
    script = Path(arguments.checkout or "/nowhere", "cleanrl", "sac_continuous_action.py").absolute()
    if not script.exists():
        parser.error(f"{script}: a checkout of CleanRL was expected, as --checkout or in CLEANRL")
    command = [
        sys.executable,
        str(script),
        "--env-id",
        arguments.env,
        "--seed",
        str(arguments.seed),
        "--no-cuda",
    ]
    paths = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths}
    episodes = played(command, 60 * arguments.minutes, env)
    print(json.dumps({"env": arguments.env, "seed": arguments.seed, **result_of(episodes)}))


if __name__ == "__main__":
    main()
