"""Watches a run for hours: memory, descriptors and threads of each process, files, latencies and rates.

    python tests/benchmarks/soak.py halfcheetah --minutes 120 --run-dir soak

Arguments after ``--`` are further ones of the command. Each figure is printed as it was at the start, the
median of the looks between a tenth and a fifth of the time, since replays fill until then, and at the end, of
those in the last tenth. ``page_s`` is the time until the page's server answers, ``status_age_s`` that since
the newest line of the journal was written. All looks are in
``soak.looks.jsonl`` beside the run.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import whole_runs

from spreeze_zmq.base.journal import read_journal

#: Seconds between two looks.
LOOK_S = 20.0
#: With less time there are too few looks at its start.
LEAST_MINUTES = 10.0
#: Shares of the time that are its start and its end.
START, END = (0.1, 0.2), (0.9, 1.0)
COUNTERS = ("env_steps", "trained_transitions", "critic_updates", "actor_updates")


def processes(run):
    """Figures of each process of a run, by name."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if str(run / "run.json") not in command:
            continue
        try:
            with process.oneshot():
                memory, name = process.memory_full_info(), f"{Path(command[1]).name}-{command[-1]}"
                found[name] = {
                    "unique_mb": memory.uss / 1e6,
                    "descriptors": process.num_fds(),
                    "threads": process.num_threads(),
                    "children": len(process.children()),
                }
        except psutil.Error:
            continue
    return found


def page_s(run):
    """Seconds until the page's server answers anything; None where there is no page."""
    address, began_s = run / "page.url", time.monotonic()
    if not address.exists():
        return None
    try:
        with urllib.request.urlopen(address.read_text().strip(), timeout=30) as answer:
            answer.read()
    except urllib.error.HTTPError:
        pass  # an answer too
    return time.monotonic() - began_s


def look(run, launcher):
    """What is seen of a run now."""
    status = [line for line in read_journal(run / "metrics.jsonl") if line["kind"] == "status"][-1]
    age_s = time.time() - (run / "metrics.jsonl").stat().st_mtime
    files = [path for path in run.rglob("*") if path.is_file()]
    sockets = list(Path(json.loads((run / "run.json").read_text())["socket_dir"]).glob("*"))
    own = {"unique_mb": launcher.memory_full_info().uss / 1e6, "descriptors": launcher.num_fds()}
    return {
        "t_s": status["t_s"],
        "processes": {**processes(run), "launcher": own},
        "run": {
            "files": len(files),
            "mb": sum(path.stat().st_size for path in files) / 1e6,
            "sockets": len(sockets),
            "shared_memory": len(os.listdir("/dev/shm")),
            "page_s": page_s(run),
            "status_age_s": age_s,
            "lag_p50": status["policy_lag"]["recent_p50"],
            "lag_p99": status["policy_lag"]["recent_p99"],
        },
        "counters": {name: status[name] for name in COUNTERS},
        "failures": status["num_failures"],
        "samples": status["samples"],
    }


def part(looks, share):
    """The looks within shares of the time."""
    last_s = looks[-1]["t_s"]
    return [one for one in looks if share[0] * last_s <= one["t_s"] <= share[1] * last_s]


def middle(looks, *keys):
    """The median of a figure over looks; None where none has it."""
    values = []
    for value in looks:
        for key in keys:
            value = (value or {}).get(key)
        values += [] if value is None else [value]
    return statistics.median(values) if values else None


def rows(looks):
    """Each figure's name, start and end."""
    start, end = part(looks, START), part(looks, END)
    for name in sorted({name for one in looks for name in one["processes"]}):
        for figure in ("unique_mb", "descriptors", "threads", "children"):
            keys = ("processes", name, figure)
            yield f"{name} {figure}", middle(start, *keys), middle(end, *keys)
    for figure in looks[-1]["run"]:
        yield figure, middle(start, "run", figure), middle(end, "run", figure)
    for name in COUNTERS:
        rates = []
        for looked in (start, end):
            span_s = looked[-1]["t_s"] - looked[0]["t_s"]
            rates.append((looked[-1]["counters"][name] - looked[0]["counters"][name]) / span_s)
        yield f"{name}_per_s", *rates


def watch(run, launcher, until_s):
    """Look at a run until it ends; returns all looks."""
    looks, process = [], psutil.Process(launcher.pid)
    with run.with_name(f"{run.name}.looks.jsonl").open("w") as file:
        while launcher.poll() is None and time.monotonic() < until_s:
            try:
                looks.append(look(run, process))
                print(json.dumps(looks[-1]), file=file, flush=True)
            except (OSError, IndexError, KeyError, psutil.Error) as error:
                print(f"not seen: {error!r}", flush=True)
            time.sleep(LOOK_S)
    return looks


def main():
    """Start the run, watch it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("topology")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--run-dir", type=Path, default=Path("soak"))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    if arguments.minutes < LEAST_MINUTES:
        parser.error(f"--minutes: expected at least {LEAST_MINUTES:g}, got {arguments.minutes:g}")
    run = arguments.run_dir.resolve()
    overrides = ["run.stop.return=1e9", f"run.stop.minutes={arguments.minutes}"]
    command = [*whole_runs.launch(arguments.topology, run, overrides), *words[at + 1 :]]
    with run.with_name(f"{run.name}.out").open("w") as output:
        launcher = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        looks = watch(run, launcher, time.monotonic() + 60 * arguments.minutes + 300)
    finally:
        launcher.send_signal(signal.SIGINT)
        code = launcher.wait()
    if not looks:
        raise SystemExit(f"nothing was seen of the run: {output.name} has what it said")
    for name, start, end in rows(looks):
        if start is not None or end is not None:
            print(f"{name:40} {start or 0:14.3f} {end or 0:14.3f}")
    print(f"exit code {code}, {looks[-1]['failures']} failures, samples {looks[-1]['samples']}")


if __name__ == "__main__":
    main()
