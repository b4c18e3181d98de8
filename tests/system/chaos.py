"""Ends and hangs processes of real runs at random, and holds what comes of it against what must hold:

python -m tests.system.chaos --events 200 --seed 1
python -m tests.system.chaos --roads sac ppo lockstep groups --events 20
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

from spreeze_zmq.plan import topology as topologies
from tests.system.conftest import Left, Run, adds_up
from tests.system.test_algorithms import ROADS

#: How a process is hit, and how often of all.
BLOWS = {"SIGKILL": 4, "SIGTERM": 3, "SIGSTOP": 2, "SIGSEGV": 1}
#: No return ends the run, and no number of restarts of a role.
SETTINGS = (
    "run.stop.return=100000",
    "run.stop.minutes=120",
    "run.checkpoint_minutes=0.05",
    "components.broker.heartbeat_timeout_s=5",
    "components.sampler.count=2",
)
OF_A_ROLE = ("components.{}.max_restarts=10000", "components.{}.restart_window_s=1")
#: The road whose policy is evaluated after the last blow, and a return of it that only a trained policy has;
#: random actions have -1,200.
LEARNING, LEARNED = "learning", -300.0
#: Environments whose steps sleep leave the cores to those that start again.
NAPPING = {
    "pendulum": "run.env=tests.benchmarks.napping:make",
    "cartpole": "run.env=tests.benchmarks.napping:cartpole",
}
#: A topology and its settings: those of every algorithm, and of every mode.
WAYS = {LEARNING: ("pendulum",)} | {
    road: (topology, NAPPING[topology.partition("_")[0]], *(word for word in words if word != "--set"))
    for road, (topology, *words) in ROADS.items()
}
WAYS |= {
    "discrete_sac": ("cartpole_dqn", NAPPING["cartpole"], "run.algorithm=discrete_sac"),
    "lag": (*WAYS["sac"], "balance.mode=bounded", "balance.max_policy_lag=2"),
    "lockstep": (*WAYS["sac"], "balance.mode=lockstep"),
    "lockstep_rounds": (*WAYS["ppo"], "balance.mode=lockstep"),
    "groups": (*WAYS["dqn"], "groups.count=2", "groups.every_updates=50", "groups.patience_s=2"),
}
#: Mean time between two blows.
GAP_S = 1.5


def start(folder, road=LEARNING):
    """The run that is to be harassed."""
    topology, *settings = WAYS[road]
    settings += SETTINGS
    roles = topologies.load(topology, settings).components
    settings += [each.format(role) for role in roles for each in OF_A_ROLE]
    run = Run(folder, *(word for setting in settings for word in ("--set", setting)), topology=topology)
    run.until(lambda: run.updates() >= 50, "updates of every learner", 200)
    return run


def harass(run, num_events, seed):
    """Hit living processes of the run until there are ``num_events``.

    Returns:
        How often each role was hit and how, and all processes that the run has had: ``(pid, begin)``.
    """
    chance, hits, family = random.Random(seed), Counter(), set()
    # In lock-step what trains and collects is not started again: that ends the run.
    roles = [role for role, about in run.plan()["components"].items() if about["max_restarts"]]
    while hits.total() < num_events:
        assert run.launcher.poll() is None, f"the run has ended:\n{run.said()[-5000:]}"
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(run.launcher.pid).children(recursive=True)
            family |= {(child.pid, child.create_time()) for child in children}
            role = chance.choice(roles)
            living = {name: one for name, one in run.processes().items() if name.startswith(role)}
            if living:
                blow = chance.choices(list(BLOWS), list(BLOWS.values()))[0]
                living[chance.choice(sorted(living))].send_signal(getattr(signal, blow))
                hits[role, blow] += 1
        time.sleep(chance.expovariate(1 / GAP_S))
    return hits, family


def recover(run, least=LEARNED, deadline_s=180):
    """Wait until the run trains again and a policy is evaluated, as trained with a return of ``least``;
    returns its return.
    """
    began_s, updates = run.summary()["wall_s"], run.updates()

    def learned():
        summary = run.summary()
        later = [mean for t_s, _, mean, _ in summary["evaluations"] if t_s > began_s]
        return run.updates() > updates + 100 and later and max(later) >= least and later

    return max(run.until(learned, f"a return of {least} after the last blow", deadline_s))


def conclude(run, family=()):
    """End the run; assert that it ends well and that nothing of it is left, of `family` and in its folder."""
    run.interrupt()
    assert run.end() == 0, run.said()[-5000:]
    summary = run.summary()
    for channel, samples in summary["samples_by_channel"].items():
        assert adds_up(samples), (channel, samples)
        assert samples["in_flight"] == 0, (channel, samples)
    for folder in (run.folder, *run.folder.glob("groups/*")):
        assert Left(folder).leftovers() == []
        assert not list(folder.glob(".*"))
    left = [psutil.Process(pid) for pid, begin in family if alive(pid, begin)]
    assert not left, f"orphans: {left}"
    return summary


def alive(pid, begin):
    """Whether this very process lives."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return process.create_time() == begin and process.status() != psutil.STATUS_ZOMBIE
    return False


def whole(folder, num_events, seed, road=LEARNING):
    """Everything, on a run of its own; returns the last summary, the hits and the return after them."""
    run = start(folder, road)
    try:
        hits, family = harass(run, num_events, f"{road} {seed}")
        score = recover(run) if road == LEARNING else recover(run, -float("inf"), 400)
        return conclude(run, family), hits, score
    finally:
        run.clear()


def main():
    """Print what was done and what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=200, help="of each road")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--roads", nargs="+", choices=WAYS, default=[LEARNING], help=", ".join(WAYS))
    arguments = parser.parse_args()
    failed = []
    for road in arguments.roads:
        began_s = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                summary, hits, score = whole(Path(folder) / "run", arguments.events, arguments.seed, road)
        except AssertionError as error:
            print(f"{road}: {error}", flush=True)
            failed.append(road)
            continue
        for role in dict.fromkeys(role for role, _ in sorted(hits)):
            print(f"{role:15}", *(f"{blow} {hits[role, blow]:3}" for blow in BLOWS))
        took = f"{hits.total()} blows in {time.monotonic() - began_s:.0f} s, {summary['restarts']} restarts"
        account = f"samples {summary['samples']}; nothing left behind"
        print(f"{road}: {took}; return {score:.0f} after them; {account}", flush=True)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
