"""Returns that are reached and held: shipped topologies on several seeds, one run after the other.

    python tests/benchmarks/arrival.py halfcheetah hopper --seeds 501 502 503 --minutes 20 --out arrival

Each run has all cores to itself and stays in ``--out``; one that is there whole is not run again, so that a
table may take several sittings. For each run: the return of the policy that was the best one after each of
``--at`` seconds, by the episodes that confirmed it (by its first look where none had); the median of the
looks of the last fifth of the env steps, and its share of the best look; the worst look after the first at
nine tenths of the best; env steps and transitions trained on a second; ``others`` is the share of the cores
that other programs took. Then the median and the worst of the seeds of each task. Arguments after ``--`` are
further ones of the command.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import held
import whole_runs

from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.base.usage import busy_cpu_s

#: A return is the topology's own reason to stop; here minutes are the only one.
STOP = "run.stop={{minutes = {minutes:g}}}"


def run_of(task, seed, arguments, words):
    """The folder of a run, which is played if it is not there whole."""
    folder = arguments.out / f"{task}-{seed}"
    if (folder / "others.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was cut
    overrides = [f"run.seed={seed}", STOP.format(minutes=arguments.minutes)]
    command = [*whole_runs.launch(task, folder, overrides), *words]
    began_s, busy_s = time.monotonic(), busy_cpu_s()
    with (arguments.out / f"{folder.name}.out").open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        words = f"{' '.join(command)}\nended with exit code {process.returncode}"
        raise SystemExit(f"{words}: {output.name} has what it said")
    span_s = (time.monotonic() - began_s) * len(os.sched_getaffinity(0))
    others = max(0.0, busy_cpu_s() - busy_s - usage.ru_utime - usage.ru_stime) / span_s
    whole_runs.write_whole(folder / "others.json", others)
    return folder


def row_of(folder, at_s):
    """The figures of a run, by column."""
    looks = list(read_journal(folder / "metrics.jsonl", ("evaluation",)))
    row = {}
    for until_s in at_s:
        best = [look["mean_return"] for look in looks if look["best"] and look["t_s"] <= until_s]
        row[f"{until_s:g} s"] = best[-1] if best else None
    first = [(look["env_steps"], look["mean_return"]) for look in looks if not look["confirmed"]]
    kept = held.held(first)
    row |= {"last fifth": kept["median_of_last_fifth"], "worst after": kept["worst_after"]}
    row["of best"] = kept["median_of_last_fifth"] / kept["best"] if kept["best"] > 0 else None
    summary = json.loads((folder / "summary.json").read_text())
    for name in ("env_steps", "trained_transitions"):
        row[f"{name}/s"] = summary[name] / summary["wall_s"]
    return {**row, "others": json.loads((folder / "others.json").read_text())}


def text(value):
    """A cell of the table."""
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.0f}"


def table(rows):
    """Markdown: each run, then the median and the worst of each task's seeds.

    Args:
        rows: by task and seed.
    """
    columns = list(next(iter(rows.values())))
    lines = [" | ".join(["| task | seed", *columns]) + " |", "|---" * (len(columns) + 2) + "|"]
    for task in dict.fromkeys(task for task, _ in rows):
        own = {seed: row for (of, seed), row in rows.items() if of == task}
        lines += [
            " | ".join([f"| {task} | {seed}", *map(text, row.values())]) + " |" for seed, row in own.items()
        ]
        for name, of in (("median", statistics.median), ("worst", min)):
            cells = []
            for column in columns:
                values = [row[column] for row in own.values() if row[column] is not None]
                whole = max if (name, column) == ("worst", "others") else of
                cells.append(text(whole(values) if values else None))
            lines.append(" | ".join([f"| {task} | {name}", *cells]) + " |")
    return "\n".join(lines)


def main():
    """Play what is missing, print the table of what is there."""
    parser = whole_runs.parser(__doc__)
    parser.add_argument("topology", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--at", type=float, nargs="+", default=[60.0, 300.0, 1200.0], metavar="SECONDS")
    parser.add_argument("--out", type=Path, required=True)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for seed in arguments.seeds:
        for task in arguments.topology:
            row = rows[task, seed] = row_of(run_of(task, seed, arguments, words[split + 1 :]), arguments.at)
            print(f"{task} {seed}: " + "  ".join(f"{k} {text(v)}" for k, v in row.items()), flush=True)
    print(table({key: rows[key] for task in arguments.topology for key in rows if key[0] == task}))


if __name__ == "__main__":
    main()
