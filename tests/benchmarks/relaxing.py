"""Wall time to an evaluated return in free and in lock-step mode, in turn on the same cores.

    python tests/benchmarks/relaxing.py pendulum --target -200
    python tests/benchmarks/relaxing.py halfcheetah --target 2000 --minutes 10

Also prints the environment steps and trained transitions at that point, since one mode may need more of them
in less time, and whether the account of samples adds up.
"""

import json
import math
import statistics

import whole_runs

MODES = ("free", "lockstep")


def main():
    """Every seed in every mode, then the medians."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology")
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    results = {mode: [] for mode in arguments.modes}
    stop = f"run.stop={{return={arguments.target}, minutes={arguments.minutes}}}"
    for seed in arguments.seeds:
        for mode in arguments.modes:
            overrides = [f"run.seed={seed}", stop, *arguments.set, f"balance.mode={mode}"]
            summary = whole_runs.ours(arguments.topology, overrides)
            results[mode].append(summary)
            samples, lag = summary["samples"], summary["policy_lag"]
            reached = (summary["best_return"] or -math.inf) >= arguments.target
            print(
                f"{mode:8} seed {seed}: {summary['wall_s']:6.1f} s,"
                f" {'reached' if reached else 'NOT reached'} (best {summary['best_return']}),"
                f" {summary['env_steps']} env steps, {summary['trained_transitions']} trained,"
                f" ratio {summary['replay_ratio']['measured']:.2f},"
                f" lag {lag['p50']}/{lag['p99']}/{lag['max']},"
                f" {whole_runs.account(samples)}",
                flush=True,
            )
    for mode, runs in results.items():
        medians = {
            name: statistics.median(run[name] for run in runs)
            for name in ("wall_s", "env_steps", "trained_transitions")
        }
        print(f"{mode:8} median: {json.dumps(medians)}")


if __name__ == "__main__":
    main()
