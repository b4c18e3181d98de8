"""The cost of evaluator, broker and status: updates/s of whole runs with and without them, in turn.

    python tests/benchmarks/overhead.py halfcheetah --pairs 5 --seconds 30

Without a broker the learners' reports wait in their queues and are read after the run, so that nothing
disturbs the measurement. Both kinds of run are measured over the same span of their lives.
"""

import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import whole_runs

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.wire import channels

WARM_UP_S = 8.0


def start(arguments, folder, *more):
    """Start a run that ends only when this script stops it; ``more`` are further options of the command."""
    overrides = ["run.stop.return=1e9", "run.stop.minutes=10"]
    command = [*whole_runs.launch(arguments.topology, folder, overrides), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stop(launcher):
    """End a run as by Ctrl-C."""
    launcher.send_signal(signal.SIGINT)
    launcher.wait()


def rate(points, seconds):
    """Updates/s between two ages of a process, from (age, updates) pairs."""
    first = next(p for p in points if p[0] >= WARM_UP_S)
    last = next(p for p in reversed(points) if p[0] <= WARM_UP_S + seconds)
    return (last[1] - first[1]) / (last[0] - first[0])


def with_everything(arguments, folder):
    """The run as a user starts it, its status drawn as plain lines."""
    launcher = start(arguments, folder)
    time.sleep(WARM_UP_S + arguments.seconds + 4)
    stop(launcher)
    lines = [line for line in read_journal(Path(folder, "metrics.jsonl")) if line["kind"] == "status"]
    return rate([(line["t_s"], line["critic_updates"]) for line in lines], arguments.seconds)


def without(arguments, folder):
    """Samplers and learners alone."""
    launcher = start(arguments, folder, "--without", "broker", "--without", "evaluator")
    time.sleep(WARM_UP_S + arguments.seconds + 4)
    plan = Plan.read(Path(folder, "run.json"))
    reports = channels.open_channel(plan.channels["report"], "pull", "overhead", 1)
    points = []
    until_s = time.monotonic() + 2.0
    while time.monotonic() < until_s:
        message = reports.pull(0.2)
        if message is None:
            continue
        if message.kind == "report" and message.fields["role"] == "critic_learner":
            points.append((message.fields["uptime_s"], message.fields["counters"]["critic_updates"]))
    reports.close()
    stop(launcher)
    return rate(points, arguments.seconds)


def main():
    """Print each pair and the median ratio."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    ratios = []
    for pair in range(arguments.pairs):
        with tempfile.TemporaryDirectory() as folder:
            turns = [with_everything, without] if pair % 2 == 0 else [without, with_everything]
            rates = {turn: turn(arguments, f"{folder}/{turn.__name__}") for turn in turns}
        ratios.append(rates[with_everything] / rates[without])
        print(f"with {rates[with_everything]:.1f}, without {rates[without]:.1f} critic updates/s", flush=True)
    cost = 100 * (1 - statistics.median(ratios))
    print(f"evaluator, broker and status cost {cost:.1f} % (median of {arguments.pairs} pairs)")


if __name__ == "__main__":
    main()
