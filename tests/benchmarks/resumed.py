"""A run whose head's machine loses its power again and again, and that goes on there by ``--resume``.

    python tests/benchmarks/resumed.py --times 10

The machines and the task are those of ``faults.py``: a head that samples nothing, and two with a sampler
each, which find another run at the head's address, leave, and join again by hand. A checkpoint is written
every three seconds.

Seconds, as median and worst: ``empty`` until nothing of the last run lives on any machine, ``back`` from the
next launch until it has more env steps than were saved. ``again`` counts the env steps that were made after
the last checkpoint, ``foreign`` the rollouts that a learner got of another run than its own.
"""

import argparse
import json
import statistics
import time

from faults import Run, alive
from machines import network, wait_for
from nodes import statuses

from spreeze_zmq.run.checkpoint import latest

SETS = ("--set", "run.checkpoint_minutes=0.05")
#: Env steps that each life makes beyond those that it begins with.
MORE = 1_000


def saved(run):
    """The env steps of the newest complete checkpoint; 0 before there is one."""
    found = latest(run.folder / "checkpoints")
    return 0 if found is None else found.state["counts"]["env_steps"]


def resumed(run, machines):
    """The run that goes on from one whose head has just died, and its figures."""
    head, *others = machines
    last, made = saved(run), run.newest()["env_steps"]
    living, began_s = set().union(*map(alive, others)), time.monotonic()
    head.die()
    head.boot()
    begun_s = time.monotonic()
    following = Run(machines, run.mark + 1, "--resume", f"/tmp/{run.folder.name}", *SETS)
    wait_for(lambda: not any(living & alive(machine) for machine in others), 60)
    empty_s = time.monotonic() - began_s
    for machine in others:
        following.join(machine)
    wait_for(lambda: following.newest().get("env_steps", 0) > last)
    counts = [status["env_steps"] for status in statuses(following.folder)]  # the last run's at first
    assert counts == sorted(counts), counts
    return following, {"empty": empty_s, "back": time.monotonic() - begun_s, "again": max(0, made - last)}


def main():
    """Print a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--network", default="10.80.0", help="first numbers of the machines' addresses")
    arguments = parser.parse_args()
    figures, received, foreign = [], 0, 0
    with network(2, arguments.network) as machines:
        run = Run(machines, 1, *SETS)
        for machine in machines[1:]:
            run.join(machine)
        for _ in range(arguments.times):
            least = saved(run) + MORE
            wait_for(lambda run=run, least=least: saved(run) > least, 300)
            last, (run, figure) = run, resumed(run, machines)
            figures.append(figure)
            own, others = last.foreign()
            received, foreign = received + own, foreign + others
        steps, account = run.newest()["env_steps"], run.end()
    row = {
        name: f"{statistics.median(each):.1f}, {max(each):.1f}"
        for name in figures[0]
        for each in [[figure[name] for figure in figures]]
    }
    about = {"hits": len(figures), **row, "env_steps": steps, **account}
    print(json.dumps({**about, "rollouts": received, "foreign": foreign}), flush=True)


if __name__ == "__main__":
    main()
