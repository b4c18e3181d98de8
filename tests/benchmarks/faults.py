"""Runs over several machines that are hit again and again: what is noticed, what is left, what comes back.

    python tests/benchmarks/faults.py half node client freeze cut20 cut60 cutend launcher head --times 10

The machines are those of ``machines.py``: a head that samples nothing, and two with a sampler each. Kinds:

    half      kill -9 of a machine's ``spreeze join``; it joins again by hand
    node      a machine without power; it boots and joins again by hand
    client    kill -9 of the ssh client of ``--nodes ssh:``
    launcher  kill -9 of the launcher; another run follows at once on the same ports
    head      the head's machine without power; it boots, and another run follows on the same ports
    freeze    SIGSTOP of everything on a machine for 60 s, then SIGCONT
    cut20     a machine's cable is out for 20 s; cut60 for 60 s
    cutend    the cable is out for 27 s, and the run ends once the machine has joined again; another follows

Seconds, as median and worst: ``noticed`` until the head says that the machine is gone, ``empty`` until
nothing that ran there (for launcher and head: on any machine) is alive, after a freeze from SIGCONT on,
``back`` until it is part of the run again, from the healing on where there is one. ``foreign`` counts the
rollouts that a learner got of another run than its own: each observation says of which it is. The account is
that of all runs, each at its end.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from machines import network, wait_for
from nodes import join, launched, statuses

from spreeze_zmq.wire import decode, rollout_from
from spreeze_zmq.wire.channels import RecordingReader

sys.path.append(str(Path(__file__).parents[2]))
from tests.system.sshd import Server

MODULE = '''
import time
import gymnasium
import numpy as np

class Marked(gymnasium.Env):
    """Says in each observation of which run it is."""

    observation_space = gymnasium.spaces.Box(-1000, 1000, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, mark=0):
        self.mark = mark

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([self.mark, 0], np.float32), {}

    def step(self, action):
        time.sleep(0.01)
        self.steps += 1
        return np.array([self.mark, self.steps], np.float32), float(action), False, self.steps >= 100, {}
'''
TOPOLOGY = """
[run]
env = "marked:Marked"
env_kwargs = {{ mark = {mark} }}
algorithm = "dqn"
stop = {{ minutes = 60 }}

[algorithm]
hidden_sizes = [16]
learning_starts = 256

[balance]
replay_ratio = 1

[components.sampler]
envs = 4
workers = 0

[components.critic_learner]
start_timeout_s = 300
"""
PORT = 20_500
#: Time after which nothing of a run may live that has ended.
GONE_S = 12.0
KINDS = ("half", "node", "client", "launcher", "head", "freeze", "cut20", "cut60", "cutend")
#: Until a link heals, or a machine goes on.
SECONDS = {"freeze": 60, "cut20": 20, "cut60": 60, "cutend": 27}


class Run:
    """One run of a series, with a mark of its own.

    Args:
        machines: the head first.
        mark: of this run.
        more: arguments of the launcher.
    """

    def __init__(self, machines, mark, *more, **how):
        self.head, self.others = machines[0], machines[1:]
        self.mark = mark
        (self.head.tmp / "marked.py").write_text(MODULE)
        (self.head.tmp / "waiting.toml").write_text(TOPOLOGY.format(mark=mark))
        listen = ("--listen", f"{self.head.address}:{PORT}", "--record", "critic_learner")
        self.program, self.folder, self.address = launched(self.head, *listen, *more, run=f"run{mark}", **how)

    def said(self):
        """The launcher's lines."""
        return (self.head.tmp / "head.out").read_text()

    def newest(self):
        """The newest status."""
        return [{}, *statuses(self.folder)][-1]

    def join(self, machine):
        """Have a machine join by hand, and wait until it has."""
        before = self.count(machine, "has joined")
        half = join(machine, self.address, self.folder, 1)
        wait_for(lambda: self.count(machine, "has joined") > before)
        return half

    def count(self, machine, word):
        """The lines about a machine with a word."""
        lines = self.said().splitlines()
        return sum(word in line and f"{machine.host} " in line for line in lines)

    def goes_on(self, more=300):
        """Wait for further env steps, so that every sampler takes part."""
        before = self.newest().get("env_steps", 0)
        wait_for(lambda: self.newest().get("env_steps", 0) > before + more, 300)

    def end(self):
        """Ctrl-C; returns the account, or why the end is not as it should be."""
        self.program.signal(signal.SIGINT)
        code = self.program.wait(60)
        samples = json.loads((self.folder / "summary.json").read_text())["samples"]
        sums = samples["received"] + samples["dropped"] + samples["in_flight"]
        assert code == 0, self.said()
        assert samples["produced"] == sums, samples
        assert samples["in_flight"] == 0, samples
        return samples

    def foreign(self):
        """Rollouts that the learner got of this run, and of others."""
        counts = [0, 0]
        for path in (self.folder / "recordings").glob("critic_learner-0*"):
            for entry in RecordingReader(path).entries():
                if entry.channel.startswith("experience") and not entry.sent:
                    obs = np.array(rollout_from(decode(entry.frames)).obs)
                    counts[not (obs[..., 0] == self.mark).all()] += 1
        return counts


def alive(machine):
    """The processes on a machine but those of its ssh server."""
    return {pid for pid, line in machine.processes().items() if "sshd" not in line}


class Series:
    """The hits of one kind.

    Args:
        kind: one of ``KINDS``.
        machines: the head first.
    """

    def __init__(self, kind, machines):
        self.kind, self.head, self.others = kind, machines[0], machines[1:]
        self.machines, self.mark = machines, 0
        self.times = {"noticed": [], "empty": [], "back": []}
        self.account, self.received, self.foreign = {}, 0, 0

    def begin(self, *more, **how):
        """Another run, which every machine joins."""
        self.mark += 1
        run = Run(self.machines, self.mark, *more, **how)
        if not more:
            for machine in self.others:
                run.join(machine)
        wait_for(lambda: len(run.newest().get("machines", {})) == len(self.others))
        run.goes_on()
        return run

    def judge(self, run):
        """Add what the learner of a run got."""
        own, others = run.foreign()
        self.received, self.foreign = self.received + own, self.foreign + others

    def end(self, run):
        """End a run, and add its account."""
        for name, count in run.end().items():
            self.account[name] = self.account.get(name, 0) + count
        wait_for(lambda: not any(map(alive, self.machines)), GONE_S)
        self.judge(run)

    def until_ended(self, machines, living, began_s):
        """Note the time until no process is left of ``living``."""
        wait_for(lambda: not any(living & alive(machine) for machine in machines), 60)
        self.times["empty"].append(time.monotonic() - began_s)

    def row(self):
        """The figures."""
        times = {
            name: f"{statistics.median(times):.1f}, {max(times):.1f}"
            for name, times in self.times.items()
            if times
        }
        about = {"hits": max(map(len, self.times.values())), **times, **self.account}
        return {"kind": self.kind, **about, "rollouts": self.received, "foreign": self.foreign}


def hit_machines(series, times):
    """A run in which one machine is hit ``times`` times, and the run after it."""
    kind, machine = series.kind, series.others[0]
    with Logins(machine) as logins:
        more = ("--nodes", f"ssh:{machine.host}") if kind == "client" else ()
        run = series.begin(*more, **({"env": logins.environment} if more else {}))
        for _ in range(times):
            hit(series, run, machine)
            run.goes_on()
        series.end(run)
        after = series.begin()
        series.end(after)


def hit(series, run, machine):
    """One fault of a machine, and its return."""
    kind = series.kind
    gone, back = run.count(machine, "is gone"), run.count(machine, "has joined")
    living = alive(machine)
    samplers = living - set(machine.find("spreeze join"))
    began_s = healed_s = time.monotonic()
    if kind in ("half", "client"):
        who = machine if kind == "half" else series.head
        who.signal(signal.SIGKILL, "spreeze join tcp" if kind == "half" else "ssh -F")
        series.until_ended([machine], living, began_s)
    elif kind == "node":
        machine.die()
    elif kind == "freeze":
        machine.signal(signal.SIGSTOP)
    else:
        machine.cut()
    wait_for(lambda: run.count(machine, "is gone") > gone, 30, 0.02)
    series.times["noticed"].append(time.monotonic() - began_s)
    if kind.startswith("cut"):
        series.until_ended([machine], samplers, began_s)
    if kind in SECONDS:
        time.sleep(max(0.0, began_s + SECONDS[kind] - time.monotonic()))
        healed_s = time.monotonic()
        machine.signal(signal.SIGCONT) if kind == "freeze" else machine.cut(off=False)
    if kind == "freeze":
        series.until_ended([machine], samplers, healed_s)
    if kind in ("half", "node"):
        if kind == "node":
            machine.boot()
        run.join(machine)
    else:
        wait_for(lambda: run.count(machine, "has joined") > back, 60, 0.02)
        series.times["back"].append(time.monotonic() - healed_s)


def hit_heads(series, times):
    """Run after run, each of which loses its head."""
    run = series.begin()
    for _ in range(times):
        watched = series.machines if series.kind == "launcher" else series.others
        living, began_s = set().union(*map(alive, watched)), time.monotonic()
        watch = threading.Thread(target=series.until_ended, args=(watched, living, began_s))
        if series.kind == "launcher":
            os.kill(run.program.pid, signal.SIGKILL)
        else:
            series.head.die()
            series.head.boot()
        watch.start()
        series.mark, last = series.mark + 1, run
        run = Run(series.machines, series.mark)  # it may listen before the machines have left the last one
        watch.join()
        series.judge(last)
        for machine in series.others:
            run.join(machine)
        run.goes_on()
    series.end(run)


def hit_ends(series, times):
    """Run after run, each of which ends while what a machine had sent may still be on its way."""
    for _ in range(times):
        run = series.begin()
        hit(series, run, series.others[0])
        series.end(run)


class Logins:
    """An ssh server on a machine, and what lets the launcher log in there."""

    def __init__(self, machine):
        self._folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
        self._server = Server(self._folder, machine.address, machine.command())
        self.environment = {**os.environ, "SPREEZE_SSH": self._server.ssh}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()
        shutil.rmtree(self._folder)


def main():
    """Print a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--network", default="10.79.0", help="first numbers of the machines' addresses")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        with network(1 if kind == "client" else 2, arguments.network) as machines:
            series = Series(kind, machines)
            try:
                hits = {"launcher": hit_heads, "head": hit_heads, "cutend": hit_ends}
                hits.get(kind, hit_machines)(series, arguments.times)
            except (TimeoutError, AssertionError):
                print((machines[0].tmp / "head.out").read_text(), flush=True)
                raise
            print(json.dumps(series.row()), flush=True)


if __name__ == "__main__":
    main()
