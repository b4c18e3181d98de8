"""Evaluated returns over env steps, or over transitions trained on (batch size x gradient steps), beside
Stable-Baselines3 up to the same number of them: whether learning is right, before it is fast.

    python tests/benchmarks/learning_curves.py halfcheetah_ppo hopper_ppo --seeds 1 2 3 4 5 \\
        --peer-python .venv-peers/bin/python --jobs 2 --out learning_curves

The entries and their budgets are those of ``comparisons.toml``. Both sides are scored by the mean return of
ten deterministic episodes; a return at a quarter, half, three quarters or the end of the budget is the mean
of the evaluations in the tenth of the budget before it. The wall time of ours includes start-up, shutdown and
evaluations, to which it gives more of the machine than by default; theirs evaluates outside its clock.
With ``--jobs`` several runs go at once, each on its own cores. Only the PNG needs matplotlib (pip install
matplotlib).
"""

import math
import statistics
import sys
from importlib.util import find_spec

import comparisons
import numpy as np
import whole_runs

COLOURS = {"ours": "tab:blue", "theirs": "tab:orange"}
#: Parts of the budget at which returns are compared.
PLACES = (0.25, 0.5, 0.75, 1.0)
#: Part of the budget before each place whose evaluations are averaged: a single one is noisy.
WINDOW = 0.1
#: Points of median curves.
GRID = 200


def budget(result):
    """The unit of a result's curve and its end: ("env_steps", 1_000_000)."""
    return next(iter(result["stop"].items()))


def curve(result):
    """[place, mean return] of each evaluation."""
    if budget(result)[0] == "env_steps":
        return [[steps, mean] for _, steps, mean, _ in result["evaluations"]]
    return result["curve"]


def is_cut(result):
    """Whether the run ended before its budget."""
    by, end = budget(result)
    return result[by] < end


def return_at(result, place):
    """The mean of the evaluations in the tenth of the budget before ``place``, or the last one before that;
    None where there is none, or the run was cut before. Place 1 is the run's own end.
    """
    by, end = budget(result)
    at = result[by] if place == 1.0 else place * end
    before = [[where, mean] for where, mean in curve(result) if where <= at]
    late = [mean for where, mean in before if where >= at - WINDOW * end]
    if at > result[by] or not before:
        return None
    return statistics.fmean(late) if late else before[-1][1]


def line(result):
    """One run in words."""
    final = return_at(result, 1.0)
    return (
        f"{result['comparison']} {result['who']} seed {result['seed']}: return"
        f" {'none' if final is None else f'{final:.0f}'} after {result['env_steps']:,} env steps,"
        f" {result['trained_transitions']:,} trained{' (CUT before its budget)' * is_cut(result)},"
        f" {result['wall_s']:.0f} s"
    )


def median_curve(results):
    """The median over seeds on a grid that ends with the shortest run: two arrays ``[GRID]``."""
    end = min(result[budget(result)[0]] for result in results)
    curves = [whole_runs.on_grid(curve(result), end, GRID) for result in results]
    return np.linspace(0, end, GRID + 1)[1:], np.median(curves, axis=0)


def side(results):
    """Returns of one side at each place by seed, and the medians of its cost."""
    costs = ("env_steps", "trained_transitions", "wall_s")
    return {
        "seeds": [result["seed"] for result in results],
        "cut": sum(map(is_cut, results)),
        "returns": [[return_at(result, place) for result in results] for place in PLACES],
        **{f"median_{cost}": statistics.median(result[cost] for result in results) for cost in costs},
    }


def difference(ours, theirs):
    """The difference of the mean returns at the end, ours less theirs, and its standard error over seeds;
    None without two seeds of each.
    """
    finals = [of_side["returns"][-1] for of_side in (ours, theirs)]
    if min(map(len, finals)) < 2:
        return None
    error = math.sqrt(sum(statistics.variance(values) / len(values) for values in finals))
    return statistics.fmean(finals[0]) - statistics.fmean(finals[1]), error


def table(results):
    """A row for each comparison: both sides, the difference of their returns, the ratio of the wall times."""
    rows = []
    for name, entry, sides in comparisons.by_side([result for result in results if curve(result)]):
        row = {"comparison": name, "env": entry.env, "peer": entry.algorithm}
        row |= {who: side(runs) for who, runs in sides.items() if runs}
        if all(sides.values()):
            row |= {"difference": difference(row["ours"], row["theirs"])}
            row |= {"wall_ratio": row["theirs"]["median_wall_s"] / row["ours"]["median_wall_s"]}
        rows.append(row)
    return rows


def as_text(rows):
    """The rows as a table of Markdown, two lines for each."""
    lines = [
        "| comparison | who | returns: 1/4 | 1/2 | 3/4 | end | each seed | env steps | trained | wall time |",
        "|---" * 10 + "|",
    ]
    compared = []
    for row in rows:
        for who in (who for who in comparisons.SIDES if who in row):
            of_side = row[who]
            found = [[value for value in values if value is not None] for values in of_side["returns"]]
            medians = " | ".join(f"{statistics.median(v):.0f}" if v else "none" for v in found)
            each = ", ".join("none" if v is None else f"{v:.0f}" for v in of_side["returns"][-1])
            each += f" ({of_side['cut']} CUT before the budget)" * bool(of_side["cut"])
            lines.append(
                f"| {row['comparison']} | {who} | {medians} | {each} | {of_side['median_env_steps']:,.0f} |"
                f" {of_side['median_trained_transitions']:,.0f} | {of_side['median_wall_s']:.0f} s |"
            )
        if "wall_ratio" in row:
            better = row["difference"]
            noise = "" if better is None else f"ours {better[0]:+.0f} (standard error {better[1]:.0f}), "
            compared.append(f"{row['comparison']}: {noise}theirs / ours in wall time {row['wall_ratio']:.1f}")
    rule = f"medians over seeds; both sides: mean return of {whole_runs.EPISODES} deterministic episodes"
    return "\n".join([*lines, "", *compared, rule])


def draw(results, path):
    """One panel for each comparison: seeds thin, the median thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(comparisons.by_side([result for result in results if curve(result)]))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 4.5), squeeze=False)
    for (_, entry, sides), axis in zip(panels, axes[0], strict=True):
        labels = {"ours": "spreeze_zmq", "theirs": f"Stable-Baselines3 {entry.algorithm}"}
        for who, runs in sides.items():
            for result in runs:
                axis.plot(*np.array(curve(result)).T, color=COLOURS[who], alpha=0.35, linewidth=1)
                axis.set(title=entry.env, xlabel=budget(result)[0].replace("_", " "))
            if runs:
                label = f"{labels[who]}, median of {len(runs)}"
                axis.plot(*median_curve(runs), color=COLOURS[who], linewidth=2.5, label=label)
        axis.set_ylabel("evaluated return")
        axis.legend(loc="best", fontsize="small")
    whole_runs.draw(figure, path)


def main():
    """Run what is missing, then print the table and draw the picture of everything."""
    parser = comparisons.parser(__doc__)
    parser.add_argument("--env-steps", type=int, help="in each run; the entry's budget by default")
    parser.add_argument("--trained", type=int, help="transitions in each run, in place of env steps")
    parser.add_argument(
        "--evaluation-share",
        type=float,
        default=whole_runs.EVALUATION_SHARE,
        help="of the machine, for evaluations of ours; less to compare wall times (default: %(default)s)",
    )
    arguments = comparisons.parse(parser)

    def stop(entry):
        budgets = {"env_steps": arguments.env_steps, "trained_transitions": arguments.trained}
        if not any(budgets.values()):
            budgets = {name: getattr(entry, name) for name in budgets}
        return next({name: value} for name, value in budgets.items() if value)

    share = f"components.evaluator.cost_share={arguments.evaluation_share}"
    results, succeeded = comparisons.play_all(arguments, stop, line, [share])
    rows = table(results)
    comparisons.publish(arguments.out, "learning_curves", rows, as_text(rows))
    if find_spec("matplotlib") is None:
        print("no picture: matplotlib is missing; with it the same command draws, and runs nothing again")
    elif rows:
        draw(results, arguments.out / "learning_curves.png")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
