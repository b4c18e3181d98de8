"""Whether runs keep what they have reached: their newest looks at policies beside the best one.

    python tests/benchmarks/held.py RUN...

For each run: transitions trained on, the best look, the median of the looks in the last fifth of its env
steps, and the worst look after the first that came to nine tenths of the best. A look is the mean return of
a policy's first evaluation, five episodes by default; confirmations are left out, as only promising policies
get one.
"""

import argparse
from pathlib import Path
from statistics import median

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.run.history import read_run


def held(looks):
    """Best look, median of the last fifth, worst since nine tenths of the best were reached.

    Args:
        looks: env steps and mean return of each, the oldest first.
    """
    best, end = max(mean_return for _, mean_return in looks), looks[-1][0]
    reached = next(steps for steps, mean_return in looks if mean_return >= best - 0.1 * abs(best))
    return {
        "best": best,
        "median_of_last_fifth": median(value for steps, value in looks if steps >= 0.8 * end),
        "worst_after": min(value for steps, value in looks if steps >= reached),
        "looks": len(looks),
    }


def main():
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        entries = [
            entry for entry in read_journal(run / "metrics.jsonl", ("evaluation",)) if not entry["confirmed"]
        ]
        row = held([(entry["env_steps"], entry["mean_return"]) for entry in entries])
        trained = read_run(run).summary.get("trained_transitions", 0)
        print(f"{run.name:20} {trained / 1e6:6.1f} M  " + "  ".join(f"{k} {v:.0f}" for k, v in row.items()))


if __name__ == "__main__":
    main()
