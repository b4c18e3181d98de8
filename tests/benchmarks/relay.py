"""What a machine's relay and funnel save and cost, beside as many connections as it has samplers.

    unshare -rn sh -c 'ip link set lo up; python tests/benchmarks/relay.py policies --bytes 18000 570000'
    unshare -rn sh -c 'ip link set lo up; python tests/benchmarks/relay.py rollouts --shape 2 --shape 4 84 84'

The head and the machine are processes here, over tcp with CURVE on loopback, whose counters are the wire's: a
network of its own, as ``unshare`` makes one, carries nothing else. Each line is one number of samplers, both
ways in turn, ``--rounds`` times; the figures are medians.

policies: one of each size, twenty a second. MB/s on the wire (with its answers), shares of a core of the
publisher and of the machine, and the age of a policy when a sampler has it.
rollouts: 16 steps of 4 environments each, as fast as they go. Rollouts a second, and CPU milliseconds of one
at the learner, at the samplers and in the machine's half. ``waiting``: how many there are of each sampler
in front of a learner that takes none.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from spreeze_zmq.base.endpoints import write_keys
from spreeze_zmq.base.rollout import Rollout
from spreeze_zmq.nodes.listening import Listening, make_key_files
from spreeze_zmq.nodes.place import wires_of
from spreeze_zmq.nodes.relay import RelayThread
from spreeze_zmq.plan import topology
from spreeze_zmq.plan.plan import KEYS_FILE
from spreeze_zmq.plan.roles import POLICY, SAMPLER, experience_of
from spreeze_zmq.wire import channels, rollout_message
from spreeze_zmq.wire.channels import SocketFolder

EXPERIENCE = experience_of("critic_learner")
PER_S = 20
STEPS, ENVS = 16, 4


class Bench:
    """The plan of a run that listens, with the keys of its head and of one machine."""

    def __init__(self, folder, shape=(3,)):
        self.sockets, self.there = SocketFolder.create("bench"), SocketFolder.create("bench")
        plan = topology.load("pendulum")
        dtype = "uint8" if len(shape) > 1 else "float32"
        environment = replace(plan.environment, obs_shape=tuple(shape), obs_dtype=dtype)
        listening = Listening.at("127.0.0.1", replace(plan, environment=environment))
        self.plan = listening.plan.placed(folder, self.sockets.path)
        head, guests = make_key_files(self.sockets.path, folder / "join.key")
        keys = channels.make_keys()
        (guests / "node-1").write_text(keys.public)
        write_keys(replace(keys, server=head.public), self.there.path / KEYS_FILE)
        self.wires = wires_of(self.plan, self.there.path, [SAMPLER])
        for wire in self.wires.values():
            wire.make_gate()

    def of_a_sampler(self, name, way):
        """A channel as a sampler connects to it."""
        return self.wires[name].near if way == "relayed" else self.wires[name].far

    def close(self):
        """Remove the folders."""
        self.sockets.remove()
        self.there.remove()


def halves(bench, pipe):
    """The machine's half."""
    relay = RelayThread(bench.wires)
    pipe.send(os.getpid())
    pipe.recv()
    relay.end(0.0)
    relay.join()


def publish(bench, size, pipe):
    """The learner that publishes."""
    end = channels.open_channel(bench.plan.channels[POLICY], "pub", "learner", 1)
    weights = np.zeros(size, np.uint8)
    pipe.send(os.getpid())
    due_s = time.monotonic()
    while not pipe.poll():
        channels.poll([end], timeout_s=max(0.0, due_s - time.monotonic()))
        if time.monotonic() >= due_s:
            due_s += 1 / PER_S
            end.socket.send_multipart([str(time.monotonic()).encode(), weights])


def hear(bench, way, count, pipe):
    """So many samplers: a thread each; sends the ages of policies."""
    ages = []

    def listen():
        end = channels.open_channel(bench.of_a_sampler(POLICY, way), "sub", "sampler", 1)
        while True:
            if end.socket.poll(1000):
                ages.append(time.monotonic() - float(end.socket.recv_multipart()[0]))

    for _ in range(count):
        threading.Thread(target=listen, daemon=True).start()
    pipe.send(os.getpid())
    while pipe.recv() is not None:
        pipe.send(list(ages))
        ages.clear()
    os._exit(0)


def a_rollout(environment):
    """One of constant steps."""
    obs = np.zeros((STEPS + 1, ENVS, *environment.obs_shape), environment.obs_dtype)
    flags, rewards = np.zeros((STEPS, ENVS), bool), np.zeros((STEPS, ENVS), np.float32)
    return Rollout(
        *("sampler-0", 1, 0, STEPS * ENVS, 0, STEPS, ENVS),
        **{"obs": obs, "action": np.zeros((STEPS, ENVS, 1), np.float32), "reward": rewards},
        **{"terminated": flags, "truncated": flags, "final_obs": obs[0, :0]},
        final_index=np.zeros((0, 2), np.int32),
    )


def push(bench, way, pipe):
    """One sampler, which makes nothing but rollouts; sends how many, at each word."""
    end = channels.open_channel(bench.of_a_sampler(EXPERIENCE, way), "push", "sampler-0", 1)
    fields, rollout, pushed = bench.plan.channels[EXPERIENCE].fields, a_rollout(bench.plan.environment), 0
    pipe.send(os.getpid())
    while True:
        message = rollout_message(replace(rollout, obs=rollout.obs.copy()), fields)
        while end.is_held or not end.push(message, 0.05):
            if pipe.poll(0.001 if end.is_held else 0):
                break
        else:
            pushed += 1
        if pipe.poll():
            if pipe.recv() is None:
                os._exit(0)
            pipe.send(pushed)


def pull(bench, pipe):
    """The learner: takes rollouts once it is told to; sends how many, at each word."""
    end = channels.open_channel(bench.plan.channels[EXPERIENCE], "pull", "learner", 1)
    pipe.send(os.getpid())
    pulled, takes = 0, False
    while True:
        if takes and end.pull(0.05) is not None:
            pulled += 1
        if pipe.poll(0 if takes else None):
            if pipe.recv() is None:
                os._exit(0)
            takes = True
            pipe.send(pulled)


class Party:
    """Processes that answer."""

    def __init__(self):
        self.processes = []

    def start(self, function, *arguments):
        """One more; returns its end of a pipe, and its process."""
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=function, args=(*arguments, there))
        process.start()
        self.processes.append((process, here))
        return here, psutil.Process(here.recv())

    def close(self):
        """End them all."""
        for process, pipe in reversed(self.processes):
            pipe.send(None)
            process.join(5)
            process.kill()


def used_s(processes):
    """CPU seconds of some processes."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def policies(bench, way, count, size, seconds):
    """Figures of one way."""
    party = Party()
    _, publisher = party.start(publish, bench, size)
    machine = [party.start(halves, bench)[1]] if way == "relayed" else []
    heard, samplers = party.start(hear, bench, way, count)
    time.sleep(1.5)
    heard.send("ages")
    heard.recv()
    began_s, wire = time.monotonic(), psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    before = [used_s(some) for some in ([publisher], [samplers, *machine])]
    time.sleep(seconds)
    span_s = time.monotonic() - began_s
    after = [used_s(some) for some in ([publisher], [samplers, *machine])]
    wire = psutil.net_io_counters(pernic=True)["lo"].bytes_sent - wire
    heard.send("ages")
    ages = sorted(heard.recv())
    party.close()
    return {
        "mb_per_s": wire / span_s / 1e6,
        "publisher": (after[0] - before[0]) / span_s,
        "machine": (after[1] - before[1]) / span_s,
        "heard": len(ages) / span_s / count,
        "age_ms": 1000 * ages[len(ages) // 2],
    }


def rollouts(bench, way, count, _, seconds):
    """Figures of one way."""
    party = Party()
    learner, taker = party.start(pull, bench)
    machine = [party.start(halves, bench)[1]] if way == "relayed" else []
    samplers = [party.start(push, bench, way) for _ in range(count)]
    time.sleep(2.0)
    waiting = counts(samplers)
    learner.send("take")
    learner.recv()
    time.sleep(1.0)
    groups = ([taker], [process for _, process in samplers], machine)
    learner.send("count")
    began_s, first, before = time.monotonic(), learner.recv(), [used_s(some) for some in groups]
    time.sleep(seconds)
    learner.send("count")
    taken = learner.recv() - first
    span_s = time.monotonic() - began_s
    costs = [1000 * (used_s(some) - was) / taken for some, was in zip(groups, before, strict=True)]
    party.close()
    return {
        "per_s": taken / span_s,
        **dict(zip(("learner_ms", "samplers_ms", "half_ms"), costs, strict=True)),
        "waiting": waiting / count,
    }


def counts(samplers):
    """The sum of what samplers answer."""
    for pipe, _ in samplers:
        pipe.send("count")
    return sum(pipe.recv() for pipe, _ in samplers)


def main():
    """Print a line for each size and number of samplers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("policies", "rollouts"))
    parser.add_argument("--samplers", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--bytes", type=int, nargs="+", default=[18_000, 570_000], help="of a policy")
    parser.add_argument("--shape", type=int, nargs="+", action="append", help="of an observation")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    measure = policies if arguments.what == "policies" else rollouts
    cases = arguments.bytes if arguments.what == "policies" else arguments.shape or [[2], [4, 84, 84]]
    for case in cases:
        for count in arguments.samplers:
            found = {"direct": [], "relayed": []}
            for number in range(arguments.rounds):
                for way in list(found)[:: 1 if number % 2 else -1]:
                    with tempfile.TemporaryDirectory() as folder:
                        bench = Bench(Path(folder), case if isinstance(case, list) else (3,))
                        found[way].append(measure(bench, way, count, case, arguments.seconds))
                        bench.close()
            for way, rows in found.items():
                row = {name: round(statistics.median(each[name] for each in rows), 4) for name in rows[0]}
                print(json.dumps({"case": case, "samplers": count, "way": way, **row}), flush=True)
            if measure is rollouts:
                pairs = zip(found["relayed"], found["direct"], strict=True)
                ratios = [relayed["per_s"] / direct["per_s"] for relayed, direct in pairs]
                print(json.dumps({"relayed/direct": round(statistics.median(ratios), 3)}), flush=True)


if __name__ == "__main__":
    main()
