"""Whole runs, ours and Stable-Baselines3's, each as one dictionary of the same shape, for benchmarks that
compare them.

Both sides are scored by one rule: the mean undiscounted return of ``EPISODES`` whole episodes, played with
the mode of the policy, their starts drawn again for each evaluation.

A result holds, with names of summary.json: ``wall_s``, ``env_steps``, ``critic_updates``,
``trained_transitions`` (batch size x critic updates), ``best_return`` (None before the first evaluation),
``evaluations``, [s, env steps, mean return, standard deviation] of each; and ``curve``, [trained transitions,
mean return] of each. ``start_s`` is the part of ``wall_s`` before the peer's first env step, None for ours.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from spreeze_zmq.metrics import read_journal

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.launch")
PEER = Path(__file__).with_name("sb3.py")
#: Of one evaluation, on both sides.
EPISODES = 10
SAME_RULE = f"both sides: mean return of {EPISODES} deterministic episodes"
#: Share of the machine that evaluations may use, ten times the default, where curves matter and not speed.
EVALUATION_SHARE = 0.15
#: What a result takes from summary.json.
KEPT = (
    "env",
    "seed",
    "exit_reason",
    "env_steps",
    "critic_updates",
    "trained_transitions",
    "trained_transitions_per_s",
    "best_return",
    "evaluations",
    "samples",
    "policy_lag",
    "replay_ratio",
)


class RunFailed(Exception):
    """A run ended with an error; its message has the last lines of its output."""


def interpreter(text):
    """The type of ``--peer-python``: a wrong one is refused before the first run, not after it."""
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(
            f"an interpreter that has stable_baselines3 was expected, got {text}"
        )
    return text


def ours(topology, overrides, cores=None):
    """One run of a topology to its end; ``wall_s`` is that of the whole command.

    Args:
        topology: a shipped one's name, or a path.
        overrides: as ``--set`` takes them.
        cores: the ids of those that it may use; None for all.
    """
    words = [word for override in overrides for word in ("--set", override)]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        command = [*LAUNCH, topology, "--run-dir", str(run_dir), *words]
        command += ["--set", f"components.evaluator.episodes={EPISODES}"]
        began_s = time.monotonic()
        finish(command, cores)
        wall_s = time.monotonic() - began_s
        summary = json.loads((run_dir / "summary.json").read_text())
        journal = [line for line in read_journal(run_dir / "metrics.jsonl") if "trained_transitions" in line]
    # An evaluation knows how many transitions its policy's learner had received; the journal, how many were
    # trained on by then.
    steps, trained = (
        [0, *(line[key] for line in journal), summary[key]] for key in ("env_steps", "trained_transitions")
    )
    curve = [[float(np.interp(e[1], steps, trained)), e[2]] for e in summary["evaluations"]]
    return {**{key: summary.get(key) for key in KEPT}, "wall_s": wall_s, "start_s": None, "curve": curve}


def theirs(python, algorithm, env, seed, settings, stop, *, every, threads, cores=None):
    """One run of Stable-Baselines3; its evaluations are left out of ``wall_s``.

    Args:
        python: the interpreter of a virtual environment that has it.
        algorithm: a class of it.
        env: a Gymnasium id.
        seed: of the run.
        settings: as ``sb3.py`` takes them, by name.
        stop: as ``run.stop`` of a topology: return, env_steps, trained_transitions, minutes; the first that
            is reached ends the run.
        every: environment steps between two evaluations.
        threads: of torch.
        cores: the ids of those that it may use; None for all.
    """
    command = [python, str(PEER), algorithm, env, "--seed", str(seed), "--settings", json.dumps(settings)]
    command += ["--every", str(every), "--threads", str(threads), "--episodes", str(EPISODES)]
    for name, value in stop.items():
        command += [f"--{'target' if name == 'return' else name.replace('_', '-')}={value}"]
    return json.loads(finish(command, cores).splitlines()[-1])


def finish(command, cores=None):
    """Run a command to its end; its output."""
    pinned = [] if cores is None else ["taskset", "--cpu-list", ",".join(map(str, cores))]
    done = subprocess.run([*pinned, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(done.stderr.splitlines()[-15:])
        raise RunFailed(f"{' '.join(command)}\nended with exit code {done.returncode}:\n{said}")
    return done.stdout


def account(samples):
    """In words, whether produced = received + dropped + in flight, each counted on its own."""
    whole = samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    return f"account {'adds up' if whole else 'DOES NOT ADD UP'}: {json.dumps(samples)}"


def on_grid(curve, trained, points):
    """The return at so many places, evenly up to ``trained`` transitions."""
    at, returns = np.array(curve).T
    return np.interp(np.linspace(0, trained, points + 1)[1:], at, returns)


def draw(figure, path):
    """Write a figure of matplotlib."""
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"drawn: {path}")


def write_whole(path, value):
    """A JSON file that is never seen half-written."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(json.dumps(value))
    scratch.replace(path)
