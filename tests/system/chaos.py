"""Ends and hangs processes of a real run at random, and holds what comes of it against what must hold:

python -m tests.system.chaos --events 200 --seed 1
"""

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.system.conftest import Run, adds_up

#: How a process is hit, and how often of all.
BLOWS = {"SIGKILL": 4, "SIGTERM": 3, "SIGSTOP": 2, "SIGSEGV": 1}
ROLES = ("sampler", "critic_learner", "actor_learner", "evaluator", "broker")
#: No return ends the run, and no number of restarts.
SETTINGS = (
    "run.stop.return=0",
    "run.stop.minutes=120",
    "run.checkpoint_minutes=0.05",
    "components.broker.heartbeat_timeout_s=5",
    "components.sampler.count=2",
    *(f"components.{role}.max_restarts=10000" for role in ROLES),
    *(f"components.{role}.restart_window_s=1" for role in ROLES),
)
#: Mean time between two blows.
GAP_S = 1.5
#: A return of Pendulum that only a trained policy has; random actions have -1,200.
LEARNED = -300.0


def start(folder):
    """The run that is to be harassed."""
    run = Run(folder, *(word for setting in SETTINGS for word in ("--set", setting)))
    run.until_training()
    return run


def harass(run, num_events, seed):
    """Hit living processes of the run until there are ``num_events``.

    Returns:
        How often each role was hit and how, and all processes that the run has had: ``(pid, begin)``.
    """
    chance, hits, family = random.Random(seed), Counter(), set()
    while hits.total() < num_events:
        assert run.launcher.poll() is None, f"the run has ended:\n{run.said()[-5000:]}"
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(run.launcher.pid).children(recursive=True)
            family |= {(child.pid, child.create_time()) for child in children}
            role = chance.choice(ROLES)
            living = {name: one for name, one in run.processes().items() if name.startswith(role)}
            if living:
                blow = chance.choices(list(BLOWS), list(BLOWS.values()))[0]
                living[chance.choice(sorted(living))].send_signal(getattr(signal, blow))
                hits[role, blow] += 1
        time.sleep(chance.expovariate(1 / GAP_S))
    return hits, family


def recover(run, deadline_s=180):
    """Wait until the run trains again and a policy is evaluated as trained; returns its return."""
    began_s, updates = run.summary()["wall_s"], run.summary()["actor_updates"]

    def learned():
        summary = run.summary()
        later = [mean for t_s, _, mean, _ in summary["evaluations"] if t_s > began_s]
        return summary["actor_updates"] > updates + 100 and later and max(later) >= LEARNED and later

    return max(run.until(learned, f"a return of {LEARNED} after the last blow", deadline_s))


def conclude(run, family=()):
    """End the run; assert that it ends well and that nothing of it is left, of `family` and in its folder."""
    run.interrupt()
    assert run.end() == 0, run.said()[-5000:]
    summary = run.summary()
    for channel, samples in summary["samples_by_channel"].items():
        assert adds_up(samples), (channel, samples)
        assert samples["in_flight"] == 0, (channel, samples)
    assert run.leftovers() == []
    assert not list(run.folder.glob(".*"))
    left = [psutil.Process(pid) for pid, begin in family if alive(pid, begin)]
    assert not left, f"orphans: {left}"
    return summary


def alive(pid, begin):
    """Whether this very process lives."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.create_time() == begin and process.status() != psutil.STATUS_ZOMBIE
    return False


def whole(folder, num_events, seed):
    """Everything, on a run of its own; returns the last summary, the hits and the return after them."""
    run = start(folder)
    try:
        hits, family = harass(run, num_events, seed)
        score = recover(run)
        return conclude(run, family), hits, score
    finally:
        run.clear()


def main():
    """Print what was done and what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        summary, hits, score = whole(Path(folder) / "run", arguments.events, arguments.seed)
    for role in ROLES:
        print(f"{role:15}", *(f"{blow} {hits[role, blow]:3}" for blow in BLOWS))
    print(
        f"{hits.total()} blows in {time.monotonic() - began_s:.0f} s, {summary['restarts']} restarts;",
        end=" ",
    )
    print(f"return {score:.0f} after them; samples {summary['samples']}; nothing left behind")


if __name__ == "__main__":
    sys.exit(main())
