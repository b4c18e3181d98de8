"""Two critic-learners of batch B beside one of batch 2 B: evaluated return over trained transitions.

    python tests/benchmarks/two_learners.py halfcheetah --seeds 1 2 3 --trained 2000000 --png two_learners.png

Both take one step for 2 B transitions, so they should learn alike; what differs is that each of the two has
half of the replay, and that the policy's batch is B beside 2 B. Runs go in turn on the same cores, with a
fixed number of samplers. Needs matplotlib for the PNG, which nothing else here does (pip install matplotlib).
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import numpy as np
import whole_runs

from spreeze_zmq import topology

#: Points of trained transitions at which curves are compared.
GRID = 200


def train(arguments, name, seed):
    """One run of the budget."""
    plan = topology.load(arguments.topology, arguments.set)
    batch_size = arguments.batch or plan.algorithm["batch_size"]
    learners = 2 if name == "two" else 1
    overrides = [
        *arguments.set,
        f"run.seed={seed}",
        f"run.stop={{trained_transitions={arguments.trained}, minutes={arguments.minutes}}}",
        f"components.critic_learner.count={learners}",
        f"components.sampler.count={arguments.samplers}",
        f"components.evaluator.cost_share={whole_runs.EVALUATION_SHARE}",
        f"algorithm.batch_size={2 * batch_size // learners}",
    ]
    return {**whole_runs.ours(arguments.topology, overrides), "batch_size": batch_size}


def compare(results, trained):
    """Of the mean return over what all have trained, and over the last tenth of it: both, their difference,
    and the noise.
    """
    found = {}
    for what, part in (("over the run", slice(None)), ("over its last tenth", slice(-GRID // 10, None))):
        means = {
            name: [
                float(whole_runs.on_grid(result["curve"], trained, GRID)[part].mean())
                for result in runs.values()
            ]
            for name, runs in results.items()
        }
        deviations = {name: statistics.stdev(m) if len(m) > 1 else math.nan for name, m in means.items()}
        error = math.sqrt(sum(d**2 / len(means[name]) for name, d in deviations.items()))
        found[what] = {
            "two": means["two"],
            "one": means["one"],
            "difference": statistics.fmean(means["two"]) - statistics.fmean(means["one"]),
            "deviation_of_seeds": deviations,
            "standard_error": error,
        }
    return found


def show(comparison):
    """What is said in the end."""
    for what, found in comparison.items():
        two, one = (", ".join(f"{value:.0f}" for value in found[name]) for name in ("two", "one"))
        difference, error = found["difference"], found["standard_error"]
        verdict = "cannot be judged by one seed"
        if not math.isnan(error):
            within = abs(difference) <= 2 * error
            verdict = f"{'within' if within else 'BEYOND'} twice the noise of the seeds"
        print(f"mean return {what}: two learners {two}; one of twice the batch {one}")
        print(f"  difference {difference:+.0f}, its standard error {error:.0f}: {verdict}")


def draw(results, trained, path, title):
    """Each run thin, the means thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    labels = {"two": "two learners, batch B each", "one": "one learner, batch 2 B"}
    for (name, runs), colour in zip(results.items(), ("tab:blue", "tab:orange"), strict=True):
        for result in runs.values():
            axes.plot(*np.array(result["curve"]).T, color=colour, alpha=0.35, linewidth=1)
        curves = [whole_runs.on_grid(result["curve"], trained, GRID) for result in runs.values()]
        mean = np.mean(curves, axis=0)
        axes.plot(
            np.linspace(0, trained, GRID + 1)[1:], mean, color=colour, linewidth=2.5, label=labels[name]
        )
    axes.set(title=title, xlabel="trained transitions", ylabel="evaluated return")
    axes.legend(loc="lower right")
    whole_runs.draw(figure, path)


def main():
    """Both settings in turn for each seed, then the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topology")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--trained", type=int, default=2_000_000, help="transitions, in each run")
    parser.add_argument("--batch", type=int, help="B; that of the topology by default")
    parser.add_argument("--samplers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20, help="a run that takes longer is cut")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--png", type=Path, help="where to draw it")
    parser.add_argument("--json", type=Path, help="where to write every figure")
    arguments = parser.parse_args()
    results = {"two": {}, "one": {}}
    for seed in arguments.seeds:
        for name, runs in results.items():
            result = runs[seed] = train(arguments, name, seed)
            print(
                f"{name} seed {seed}: {result['trained_transitions']:,} trained in {result['wall_s']:.0f} s, "
                f"{result['trained_transitions_per_s']:,.0f}/s, {result['critic_updates']:,} critic updates, "
                f"last return {result['curve'][-1][1]:.0f}",
                flush=True,
            )
    reached = min(result["trained_transitions"] for runs in results.values() for result in runs.values())
    comparison = compare(results, reached)
    show(comparison)
    if arguments.json:
        arguments.json.write_text(json.dumps({"results": results, "comparison": comparison}))
    if arguments.png:
        draw(results, reached, arguments.png, arguments.topology)


if __name__ == "__main__":
    main()
