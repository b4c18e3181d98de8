"""The measured replay ratio against its target, over every minute after the first.

    python tests/benchmarks/ratio.py halfcheetah --minutes 4

Reads the broker's journal of once a second: transitions trained on and received, as the critic-learner counts
them in one report. Every window that begins after ``--after`` counts, not only whole minutes.
"""

import json
import sys
import tempfile
from pathlib import Path

import whole_runs

from spreeze_zmq.base.journal import read_journal


def played(arguments, target):
    """``(t_s, env_steps, trained_transitions)`` of one run, about once a second."""
    overrides = [f"balance.replay_ratio={target}", f"run.stop.minutes={arguments.minutes}"]
    overrides += ["run.stop.return=1e9", *arguments.set]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        whole_runs.finish(whole_runs.launch(arguments.topology, run_dir, overrides))
        lines = list(read_journal(run_dir / "metrics.jsonl"))
        samples = json.loads((run_dir / "summary.json").read_text())["samples"]
    print(f"target {target:g}: {whole_runs.account(samples)}", flush=True)
    return [(s["t_s"], s["env_steps"], s["trained_transitions"]) for s in lines if "trained_transitions" in s]


def ratios(series, after_s, window_s):
    """``(from_s, ratio)`` of each window: from each moment to the first one at least ``window_s`` later."""
    for began_s, received, trained in series:
        later = next((s for s in series if s[0] >= began_s + window_s), None)
        if began_s >= after_s and later is not None and later[1] > received:
            yield began_s, (later[2] - trained) / (later[1] - received)


def main():
    """One run and one line for each target, then the worst deviation."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology", nargs="?", default="halfcheetah")
    parser.add_argument("--targets", type=float, nargs="+", default=[0.5, 2, 8, 32])
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--after", type=float, default=60, help="seconds that are left out")
    parser.add_argument("--window", type=float, default=60, help="seconds")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    worst = 0.0
    for target in arguments.targets:
        series = played(arguments, target)
        found = list(ratios(series, arguments.after, arguments.window))
        if not found:
            sys.exit("no window: give it more --minutes")
        deviations = [100 * (ratio / target - 1) for _, ratio in found]
        whole = found[:: max(1, round(arguments.window))]
        shown = ", ".join(f"{ratio:.3f} from {began_s:.0f} s" for began_s, ratio in whole)
        furthest = max(deviations, key=abs)
        print(f"target {target:g}: {shown}; worst of {len(found)} windows {furthest:+.2f} %", flush=True)
        worst = max(worst, abs(furthest))
    print(f"worst deviation {worst:.2f} %")


if __name__ == "__main__":
    main()
