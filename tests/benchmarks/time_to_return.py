"""Wall time to an evaluated return: shipped topologies against Stable-Baselines3, in turn on the same cores.

    python tests/benchmarks/time_to_return.py cartpole_ppo cartpole_dqn --seeds 1 2 3 4 5 \\
        --peer-python .venv-peers/bin/python --out times

The entries are those of ``comparisons.toml``. Ours is timed as a whole process, start-up and shutdown of all
processes included; theirs from the start of its process, its evaluations left out. The last column leaves out
its imports and construction too, and nothing of ours. Theirs ends when the mean of ten deterministic episodes
reaches the return, ours only when thirty fresh episodes of the saved policy confirm it, whose time counts.
Both are cut after the same minutes: the time of a run that does not reach the return is a lower bound, and so
is the ratio. Results in ``--out`` are not run again.
"""

import math
import statistics
import sys

import comparisons

#: How each side's run ends, for the table.
RULE = "ours ends when thirty fresh episodes of the saved policy confirm the return, theirs when ten reach it"


def is_reached(run):
    """Whether the return ended the run."""
    return run["exit_reason"].startswith("return")


def median_s(runs, without_start=False):
    """The median wall time, and whether it is exact; if not, it is a lower bound.

    A run that did not reach the return counts as slower than all that did.
    """
    walls = [run["wall_s"] - (run["start_s"] or 0.0) * without_start for run in runs]
    times = [wall_s if is_reached(run) else math.inf for wall_s, run in zip(walls, runs, strict=True)]
    middle = statistics.median(times)
    return (middle, True) if math.isfinite(middle) else (statistics.median(walls), False)


def ratio(ours, theirs, without_start=False):
    """The ratio of the median times, in words; a bound where one side did not reach the return."""
    (our_s, ours_exact), (their_s, theirs_exact) = median_s(ours), median_s(theirs, without_start)
    if not ours_exact and not theirs_exact:
        return "unknown, neither has reached it"
    bound = "" if ours_exact and theirs_exact else "at least " if ours_exact else "at most "
    return f"{bound}{their_s / our_s:.1f}"


def line(run):
    """One run in words."""
    best = "none evaluated" if run["best_return"] is None else f"best {run['best_return']:.0f}"
    target = f"{run['stop']['return']:g}"
    outcome = f"reached {target}" if is_reached(run) else f"{target} NOT reached"
    start = "" if run["start_s"] is None else f" (start-up {run['start_s']:.1f} s)"
    return (
        f"{run['comparison']:16} {run['who']:6} seed {run['seed']}: {run['wall_s']:7.1f} s{start}, {outcome}"
        f" ({best}), {run['env_steps']:,} env steps, {run['trained_transitions']:,} trained"
    )


def side(runs):
    """The times of one side."""
    middle, is_exact = median_s(runs)
    return {
        "seeds": [run["seed"] for run in runs],
        "wall_s": [run["wall_s"] for run in runs],
        "start_s": [run["start_s"] for run in runs],
        "reached": [is_reached(run) for run in runs],
        "median_s": middle,
        "median_is_reached": is_exact,
    }


def table(results):
    """A row for each comparison: the times of both sides, and the ratio of their medians."""
    rows = []
    for name, entry, sides in comparisons.by_side(results):
        row = {"comparison": name, "env": entry.env, "peer": entry.algorithm}
        row |= {"stop": next(run for runs in sides.values() for run in runs)["stop"]}
        row |= {who: side(runs) for who, runs in sides.items() if runs}
        if all(sides.values()):
            both = sides["ours"], sides["theirs"]
            row |= {"ratio": ratio(*both), "ratio_without_start": ratio(*both, without_start=True)}
        rows.append(row)
    return rows


def times(of_side):
    """Two cells: each time, and the median."""
    if of_side is None:
        return "", ""
    each = zip(of_side["wall_s"], of_side["reached"], strict=True)
    shown = ", ".join(f"{'' if reached else 'more than '}{wall_s:.1f}" for wall_s, reached in each)
    return shown, f"{'' if of_side['median_is_reached'] else 'more than '}{of_side['median_s']:.1f} s"


def as_text(rows):
    """The rows as a table of Markdown."""
    lines = [
        "| comparison | task | return | ours | median | theirs | median | theirs / ours | without start |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        cells = [row["comparison"], row["env"], f"{row['stop']['return']:g}"]
        cells += [*times(row.get("ours")), *times(row.get("theirs"))]
        cells += [row.get("ratio", ""), row.get("ratio_without_start", "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", RULE])


def main():
    """Run in turn what is missing, print each, then the medians and their ratios."""
    parser = comparisons.parser(__doc__)
    parser.add_argument("--target", type=float, help="the return; the entry's by default")
    arguments = comparisons.parse(parser)

    def stop(entry):
        return {"return": entry.target if arguments.target is None else arguments.target}

    results, succeeded = comparisons.play_all(arguments, stop, line)
    rows = table(results)
    comparisons.publish(arguments.out, "time_to_return", rows, as_text(rows))
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
