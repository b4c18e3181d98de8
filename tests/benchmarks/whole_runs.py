"""Runs whole runs, ours and Stable-Baselines3's, and returns each as one dictionary of the same shape.

An evaluation of either side is the mean undiscounted return of ``EPISODES`` whole episodes, played with the
mode of the policy from new random starts. A return ends the peer's run at the first such evaluation, ours
only when ``confirm_episodes`` fresh episodes of the policy that is saved confirm it.

A result holds, with names of summary.json: ``wall_s``, ``env_steps``, ``critic_updates``,
``trained_transitions`` (batch size x critic updates), ``best_return`` (None before the first evaluation),
``evaluations``, [s, env steps, mean return, standard deviation] of each; and ``curve``, [trained transitions,
mean return] of each. ``start_s`` is the part of ``wall_s`` before the peer's first env step, None for ours.
``returns`` of the evaluations stand ``over`` each axis of ``spreeze_zmq.run.curves``; ``core_s`` is the CPU
time of the whole command. Both count from the command on, of ours the launcher's own too.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.run.curves import AXES, Curve, read_curve

LAUNCH = (sys.executable, "-m", "spreeze_zmq.commands.launch")
PEER = Path(__file__).with_name("sb3.py")
#: Episodes of one evaluation, on both sides.
EPISODES = 10
#: Share of the machine for evaluations where curves matter and not speed: ten times the default.
EVALUATION_SHARE = 0.15
#: The fields of summary.json in a result.
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


def parser(description):
    """A parser of a script's command line that shows its docstring as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def interpreter(text):
    """The type of ``--peer-python``, which refuses a missing interpreter before the first run."""
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(
            f"an interpreter that has stable_baselines3 was expected, got {text}"
        )
    return text


def launch(topology, run_dir, overrides):
    """The command of one of our runs; ``overrides`` are arguments of ``--set``."""
    words = [word for override in overrides for word in ("--set", override)]
    return [*LAUNCH, topology, "--run-dir", str(run_dir), *words]


def ours(topology, overrides, cores=None, environment=()):
    """One run of a topology to its end; ``wall_s`` is that of the whole command.

    Args:
        topology: name of a shipped one, a path, or ``--env=ID``.
        overrides: arguments of ``--set``.
        cores: ids of the cores that it may use; None for all.
        environment: variables beside those of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        overrides = [*overrides, f"components.evaluator.episodes={EPISODES}"]
        began_s, began_time_s = time.monotonic(), time.time()
        _, core_s = spent(launch(topology, run_dir, overrides), cores, environment)
        wall_s = time.monotonic() - began_s
        path = run_dir / "summary.json"
        summary = json.loads(path.read_text())
        # It is written when its clock stands at its wall_s.
        before = {"wall_s": path.stat().st_mtime - summary["wall_s"] - began_time_s}
        before["core_s"] = max(0.0, core_s - summary["core_s"])
        over, returns = over_axes(run_dir, before)
    cost = {"wall_s": wall_s, "core_s": core_s, "start_s": None}
    curve = [list(point) for point in zip(over["trained_transitions"], returns, strict=True)]
    found = {key: summary.get(key) for key in KEPT}
    return {**found, **cost, "curve": curve, "over": over, "returns": returns}


def over_axes(run_dir, before):
    """``{axis: places}`` of a run's looks, and their returns; ``before``: what it has not counted."""
    try:
        curve = read_curve(run_dir)
    except InputError:  # nothing was evaluated
        return {axis: [] for axis in AXES}, []
    over = {axis: (curve.x[axis] + before.get(axis, 0.0)).tolist() for axis in AXES}
    return over, curve.mean_return.tolist()


def curve_of(result):
    """The looks of a result as a curve; None where there are none."""
    over = {axis: np.array(places, np.float64) for axis, places in result["over"].items()}
    return Curve(over, np.array(result["returns"], np.float64)) if result["returns"] else None


def theirs(python, algorithm, env, seed, settings, stop, *, every, threads, cores=None):
    """One run of Stable-Baselines3; its evaluations are left out of ``wall_s``.

    Args:
        python: the interpreter of its virtual environment.
        algorithm: a class of Stable-Baselines3.
        env: a Gymnasium id.
        seed: of the run.
        settings: settings of ``sb3.py`` by name.
        stop: as ``run.stop`` of a topology: return, env_steps, trained_transitions, minutes; the first that
            is reached ends the run.
        every: environment steps between two evaluations.
        threads: of torch.
        cores: ids of the cores that it may use; None for all.
    """
    command = [python, str(PEER), algorithm, env, "--seed", str(seed), "--settings", json.dumps(settings)]
    command += ["--every", str(every), "--threads", str(threads), "--episodes", str(EPISODES)]
    for name, value in stop.items():
        command += [f"--{'target' if name == 'return' else name.replace('_', '-')}={value}"]
    return json.loads(finish(command, cores).splitlines()[-1])


def finish(command, cores=None):
    """Run a command to its end; returns its output. Raises RunFailed."""
    return spent(command, cores)[0]


def spent(command, cores=None, environment=()):
    """Run a command to its end; returns its output, and the CPU seconds of it and all that it has waited for.

    Raises:
        RunFailed: its exit code is not 0.
    """
    pinned = [] if cores is None else ["taskset", "--cpu-list", ",".join(map(str, cores))]
    env = {**os.environ, **dict(environment)}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*pinned, *command], stdout=output, stderr=errors, env=env)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        if process.returncode != 0:
            last = "".join(errors.readlines()[-15:]).rstrip()
            raise RunFailed(f"{' '.join(command)}\nended with exit code {process.returncode}:\n{last}")
        return output.read(), usage.ru_utime + usage.ru_stime


def account(samples):
    """Whether produced = received + dropped + in flight, each of which is counted separately, in words."""
    whole = samples["produced"] == samples["received"] + samples["dropped"] + samples["in_flight"]
    return f"account {'adds up' if whole else 'DOES NOT ADD UP'}: {json.dumps(samples)}"


def on_grid(curve, trained, points):
    """The return at ``points`` places, evenly up to ``trained`` transitions."""
    at, returns = np.array(curve).T
    return np.interp(np.linspace(0, trained, points + 1)[1:], at, returns)


def draw(figure, path):
    """Save a figure of matplotlib."""
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"drawn: {path}")


def write_whole(path, value):
    """Write a JSON file atomically."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(json.dumps(value))
    scratch.replace(path)
