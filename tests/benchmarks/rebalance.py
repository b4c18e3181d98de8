"""Live rebalancing after bad starts and disturbances, beside a sweep of fixed counts; curves as a PNG.

    python tests/benchmarks/rebalance.py --png rebalance.png
    python tests/benchmarks/rebalance.py --only slowed_learner --only busy_core --rounds 3

Two topologies: one whose environment mostly waits, so that several samplers are right even on two cores, and
pendulum, where one is right. Each live run is compared with the best fixed count under the same disturbance.
``--rounds`` repeats the fixed counts and the live run in turn and takes medians, since the maximum of a few
noisy figures is too high. Only the PNG needs matplotlib (pip install matplotlib).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import psutil
import whole_runs
from slowed import Slowed

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.plan import topology, tuning

HERE = Path(__file__).parent
#: An environment that waits 1 ms a step, and learners that need as much as several samplers produce.
NAPPING = ["run.env=napping:make", "balance.replay_ratio=32", "algorithm.learning_starts=500"]
PENDULUM = []
#: The time of the disturbance in seconds of the run, and the first seconds, which do not count.
DISTURBED_S, WARM_UP_S = 20.0, 6.0


class Busy:
    """A process that keeps a core busy."""

    def __init__(self, *_):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def end(self):
        """Release the core."""
        self.process.kill()
        self.process.wait()


def find(run_file, role):
    """The first process of a role of a run; None where there is none."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[-2:] == [str(run_file), "0"] and Path(command[1]).name == role:
            return process
    return None


def slowed(run_file, role):
    """Slow the first process of a role down to a tenth of its time."""
    return Slowed(lambda: find(run_file, role), period_s=0.5)


#: Name -> overrides, first count, and the disturbance: a function that begins it, and the role it disturbs.
SCENARIOS = {
    "one_where_several_are_right": (NAPPING, 1, None),
    "eight_where_one_is_right": (PENDULUM, 8, None),
    "slowed_sampler": (NAPPING, None, (slowed, "sampler")),
    "slowed_learner": (NAPPING, None, (slowed, "critic_learner")),
    "busy_core": (NAPPING, None, (Busy, "")),
}


@contextmanager
def disturbed(disturbance, run_file):
    """A context that begins the disturbance after ``DISTURBED_S`` and ends it with the run."""
    begun = []
    timer = threading.Timer(DISTURBED_S, lambda: begun.append(disturbance[0](run_file, disturbance[1])))
    if disturbance is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for one in begun:
            one.end()


def train(overrides, count, seconds, disturbance=None, begin=None):
    """One run; returns its (t_s, trained transitions) and its changes of the samplers' count.

    Args:
        overrides: of the pendulum topology.
        count: the samplers' count in the topology.
        seconds: of wall time.
        disturbance: begins after ``DISTURBED_S``.
        begin: the first count, from a prepared cache.
    """
    everything = [*overrides, f"components.sampler.count={count}", f"run.stop={{minutes={seconds / 60}}}"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        if begin is not None:
            tuning.remember(topology.load("pendulum", everything), tuning.Tuning(begin, 0.0, 0.0))
        run_dir = Path(folder, "run")
        with disturbed(disturbance, run_dir / "run.json"):
            whole_runs.finish(whole_runs.launch("pendulum", run_dir, everything))
        lines = [line for line in read_journal(run_dir / "metrics.jsonl") if line["kind"] == "status"]
        summary = json.loads((run_dir / "summary.json").read_text())
    print(f"  samplers {count}: {whole_runs.account(summary['samples'])}", flush=True)
    points = [(line["t_s"], line["trained_transitions"]) for line in lines]
    return points, summary["workers"]["sampler"]


def rate(points, from_s, to_s):
    """Trained transitions/s between two times of a run; 0 with fewer than two points there."""
    within = [point for point in points if from_s <= point[0] <= to_s]
    if len(within) < 2:
        return 0.0
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


def sweep(overrides, counts, seconds, disturbance=None):
    """Trained transitions/s of fixed counts under the disturbance."""
    rates = {}
    from_s = WARM_UP_S + (DISTURBED_S if disturbance else 0.0)
    for count in counts:
        points, _ = train(overrides, count, from_s + seconds, disturbance)
        rates[count] = rate(points, from_s, from_s + seconds)
        print(f"  fixed {count}: {rates[count]:>12,.0f} trained transitions/s", flush=True)
    return rates


def reached_s(points, bad_s, best, span_s=4.0):
    """Seconds from ``bad_s`` until the rate over ``span_s`` is within 10 % of the best; None if never."""
    for t_s, _ in points:
        if t_s >= bad_s and rate(points, t_s, t_s + span_s) >= 0.9 * best and t_s + span_s <= points[-1][0]:
            return t_s - bad_s
    return None


def live(overrides, begin, disturbance, arguments):
    """One run in which the broker chooses the number of samplers."""
    seconds = arguments.seconds + (DISTURBED_S if disturbance else 0.0)
    points, changes = train(overrides, f"[1, {max(arguments.counts)}]", seconds, disturbance, begin)
    training_s = next((t_s for t_s, trained in points if trained > 0), 0.0)
    bad_s = DISTURBED_S if disturbance else training_s
    end = rate(points, bad_s + arguments.seconds / 2, points[-1][0])
    print(f"  live: {end:>12,.0f} trained transitions/s", flush=True)
    for t_s, count, reason in changes:
        print(f"    {t_s:6.1f} s  {count}  {reason}", flush=True)
    return {"points": points, "changes": changes, "bad_s": bad_s, "end": end}


def scenario(name, arguments):
    """A bad start or a disturbance, beside the best fixed count under the same."""
    overrides, begin, disturbance = SCENARIOS[name]
    print(f"{name}:", flush=True)
    sweeps, lives = [], []
    for _ in range(arguments.rounds):
        sweeps.append(sweep(overrides, arguments.counts, arguments.sweep_seconds, disturbance))
        lives.append(live(overrides, begin, disturbance, arguments))
    fixed = {count: statistics.median(swept[count] for swept in sweeps) for count in arguments.counts}
    best, end = max(fixed.values()), statistics.median(run["end"] for run in lives)
    for run in lives:
        reached = reached_s(run["points"], run["bad_s"], best)
        took = "never" if reached is None else f"after {reached:.0f} s"
        after = [change for change in run["changes"][1:] if change[0] > run["bad_s"]]
        print(f"  {run['end'] / best:.2f} of the best; within 10 % {took}; {len(after)} changes", flush=True)
    print(f"  {name}: {end:,.0f} of {best:,.0f}, {end / best:.2f}", flush=True)
    return {"sweeps": sweeps, "fixed": fixed, "lives": lives, "best": best, "end": end}


def draw(results, path):
    """Draw rates over time beside the best fixed count, and the sweeps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(results), 2, figsize=(11, 3 * len(results)), squeeze=False)
    for (name, result), (left, right) in zip(results.items(), rows, strict=True):
        for run in result["lives"]:
            points = run["points"]
            times = [t_s for t_s, _ in points if t_s > 2]
            (drawn,) = left.plot(times, [rate(points, t_s - 2, t_s) for t_s in times])
            for t_s, count, _ in run["changes"]:
                left.annotate(str(count), (t_s, 0), color=drawn.get_color())
            left.axvline(run["bad_s"], color="red", linewidth=0.8)
        drawn.set_label("live")
        left.axhline(result["best"], color="grey", linestyle="--", label="best fixed count")
        left.axhline(0.9 * result["best"], color="grey", linestyle=":", label="10 % below")
        left.set(title=name.replace("_", " "), xlabel="s", ylabel="trained transitions/s", ylim=(0, None))
        left.legend(loc="lower right", fontsize="small")
        right.bar([str(count) for count in result["fixed"]], list(result["fixed"].values()))
        right.set(title="fixed counts", xlabel="samplers", ylim=(0, None))
    whole_runs.draw(figure, path)


def main():
    """Run the scenarios and print the outcome of each."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="may be repeated")
    parser.add_argument("--seconds", type=float, default=60, help="of each live run after its bad moment")
    parser.add_argument("--sweep-seconds", type=float, default=15, help="measured of each fixed count")
    parser.add_argument("--rounds", type=int, default=1, help="of the fixed counts and the live run")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8], metavar="N")
    parser.add_argument("--png", type=Path, help="where to draw it")
    parser.add_argument("--json", type=Path, help="where to write every figure")
    arguments = parser.parse_args()
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [before])])
    sys.path.insert(0, str(HERE))
    results = {name: scenario(name, arguments) for name in arguments.only or SCENARIOS}
    if arguments.json:
        arguments.json.write_text(json.dumps(results))
    if arguments.png:
        draw(results, arguments.png)


if __name__ == "__main__":
    main()
