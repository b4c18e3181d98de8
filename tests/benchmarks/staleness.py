"""What V-trace is worth: PPO on rollouts of policies several versions old, with and without the correction.

    python tests/benchmarks/staleness.py halfcheetah_ppo --env-steps 60000 --lag 8 --seeds 1 2 3 4 5

Every seed runs three times in turn: with a lag of at most one version, and at the stated lag with
``algorithm.correct_staleness`` on and off. ``balance.max_policy_lag`` rounds may be under way at a time, and
samplers fill them, so that most rollouts are that old. A run's score is the mean of its evaluations in the
second half of its env steps.
"""

import statistics

import whole_runs

#: name -> overrides, given the lag.
VARIANTS = {
    "lag 1": lambda lag: ["balance.max_policy_lag=1"],
    "corrected": lambda lag: [f"balance.max_policy_lag={lag}"],
    "trusted": lambda lag: [f"balance.max_policy_lag={lag}", "algorithm.correct_staleness=false"],
}


def score(result):
    """Mean return of the evaluations in the second half; the last one where there is none."""
    late = [mean for _, steps, mean, _ in result["evaluations"] if steps >= result["env_steps"] / 2]
    return statistics.fmean(late) if late else result["evaluations"][-1][2]


def main():
    """Every seed in every variant, then the means."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology")
    parser.add_argument("--env-steps", type=int, required=True)
    parser.add_argument("--lag", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    scores = {name: [] for name in VARIANTS}
    for seed in arguments.seeds:
        for name, overrides in VARIANTS.items():
            result = whole_runs.ours(
                arguments.topology,
                [
                    f"run.seed={seed}",
                    f"run.stop={{env_steps={arguments.env_steps}}}",
                    f"components.evaluator.cost_share={whole_runs.EVALUATION_SHARE}",
                    *overrides(arguments.lag),
                    *arguments.set,
                ],
            )
            scores[name].append(score(result))
            lag = "/".join(f"{result['policy_lag'][each]:g}" for each in ("p50", "p99", "max"))
            print(
                f"{name:10} seed {seed}: {scores[name][-1]:8.1f}, lag {lag}, {result['wall_s']:.0f} s",
                flush=True,
            )
    for name, found in scores.items():
        spread = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
        print(f"{name:10} mean {statistics.fmean(found):.1f}, standard error {spread:.1f}")


if __name__ == "__main__":
    main()
