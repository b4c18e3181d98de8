"""Ends and hangs processes of real runs at random, and holds what comes of it against what must hold:

python -m tests.system.chaos --events 200 --seed 1
python -m tests.system.chaos --roads sac ppo lockstep groups --events 20
python -m tests.system.chaos --mishaps full freeze cleaner --events 10
"""

import argparse
import contextlib
import random
import signal
import subprocess
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
#: After this time a process that hangs has been killed, and the summary is no longer of the time before.
SETTLED_S = 8.0
#: What may come over a whole run instead: its disk is full for some seconds, it stands still as a container
#: that is paused does, or a cleaner removes its sockets, which ends it: another run goes on from it.
MISHAPS = ("full", "freeze", "cleaner")
DISK, FULL_S, FREE_S, FROZEN_S = "256m", (1.0, 4.0), 1.0, 40.0


def start(folder, road=LEARNING, *more):
    """The run that is to be harassed, with ``more`` arguments."""
    topology, *settings = WAYS[road]
    settings += SETTINGS
    roles = topologies.load(topology, settings).components
    settings += [each.format(role) for role in roles for each in OF_A_ROLE]
    words = (word for setting in settings for word in ("--set", setting))
    run = Run(folder, *words, *more, topology=topology)
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
    settled_s = run.summary()["wall_s"] + SETTLED_S
    run.until(lambda: run.summary()["wall_s"] > settled_s, "summary of the time after")
    return hits, family


@contextlib.contextmanager
def small_disk(folder, size):
    """A disk of this size at a folder, which only root can mount: else subprocess.CalledProcessError."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file):
    """Leave no byte free on the disk of a new file."""
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(bytes(4096)):
            pass


def freeze(run, seconds):
    """Stop the launcher and all its processes, and have them go on after ``seconds``."""
    launcher = psutil.Process(run.launcher.pid)
    everybody = list({launcher, *launcher.children(recursive=True), *run.processes().values()})
    for process in everybody:
        process.suspend()
    time.sleep(seconds)
    for process in everybody:
        process.resume()


def clean(run):
    """Remove the sockets of a run."""
    for path in Path(run.plan()["socket_dir"]).iterdir():
        if path.is_socket():
            path.unlink()


def train_on(run, before, what="further updates"):
    """Wait for more updates than ``before``."""
    run.until(lambda: run.updates() > before + 100, what)


def survive(run, mishap, num_events, chance):
    """Have a mishap come over a run again and again; each time it must train on."""
    for number in range(1, num_events + 1):
        updates, what = run.updates(), f"updates after {mishap} {number}"
        if mishap == "full":
            filler = run.folder.parent / "filler"
            fill(filler)
            time.sleep(chance.uniform(*FULL_S))
            filler.unlink()
            time.sleep(FREE_S)  # else the next one is the same to whoever did not try meanwhile
        else:
            freeze(run, FROZEN_S)
        train_on(run, updates, what)


def cleaned(folder, num_events):
    """A run that goes on from the last of ``num_events`` others, each of which a cleaner has ended: with a
    whole checkpoint, exit code 1 and the reason.
    """
    run = start(folder / "run0")
    for number in range(1, num_events + 1):
        try:  # what is not ready yet could not join any more
            train_on(run, run.updates())
            clean(run)
            conclude(run, code=1)
            assert "somebody removed the run's sockets (" in run.output.read_text().splitlines()[-1]
            assert run.summary()["unfinished_checkpoint"] == []
        finally:
            run.clear()
        run = start(folder / f"run{number}", LEARNING, "--resume", str(run.folder))
    return run


def befallen(folder, num_events, seed, mishap):
    """As :func:`whole`, of a mishap."""
    with small_disk(folder, DISK):
        run = cleaned(folder, num_events) if mishap == "cleaner" else start(folder / "run")
        try:
            if mishap != "cleaner":
                survive(run, mishap, num_events, random.Random(f"{mishap} {seed}"))
            score = recover(run)
            run.interrupt()
            return conclude(run), Counter({("everybody", mishap): num_events}), score
        finally:
            run.clear()


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


def conclude(run, family=(), code=0):
    """Assert that a run that has been told to ends with this code, and that nothing of it is left, of
    ``family`` and in its folder.
    """
    assert run.end() == code, run.output.read_text()[-5000:]
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
        run.interrupt()
        return conclude(run, family), hits, score
    finally:
        run.clear()


def tried(trial, num_events, seed, what):
    """What a trial returns; None, and what is printed, where something did not hold."""
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            return trial(Path(folder) / "run", num_events, seed, what)
    except AssertionError as error:
        print(f"{what}: {error}", flush=True)
        return None


def main():
    """Print what was done and what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=int, default=200, help="of each road, or of each mishap")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--roads", nargs="+", choices=WAYS, default=[LEARNING], help=", ".join(WAYS))
    parser.add_argument("--mishaps", nargs="+", choices=MISHAPS, help="instead of blows to single processes")
    given = parser.parse_args()
    failed = []
    for what in given.mishaps or given.roads:
        began_s = time.monotonic()
        found = tried(befallen if given.mishaps else whole, given.events, given.seed, what)
        if found is None:
            failed.append(what)
            continue
        summary, hits, score = found
        for role in dict.fromkeys(role for role, _ in sorted(hits)):
            print(f"{role:15}", *(f"{blow} {count:3}" for (hit, blow), count in hits.items() if hit == role))
        took = f"{hits.total()} hits in {time.monotonic() - began_s:.0f} s, {summary['restarts']} restarts"
        account = f"samples {summary['samples']}; nothing left behind"
        print(f"{what}: {took}; return {score:.0f} after them; {account}", flush=True)
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
