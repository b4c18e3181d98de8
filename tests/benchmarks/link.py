"""A run with samplers behind a link of some delay and rate: env steps/s beside a link without.

The head and a machine are namespaces, joined by two TUN devices between which a process here passes each
packet on after the delay: their TCP is the kernel's own, with windows and acknowledgements as far apart.
``tc`` gives the rate. The environment observes frames of 84 x 84 bytes; each step waits. Needs root.

    python tests/benchmarks/link.py 0 10 50 --wait-ms 1 --samplers 2
    python tests/benchmarks/link.py 0 --mbit 100 --frames 4
"""

import argparse
import contextlib
import fcntl
import json
import multiprocessing
import os
import select
import shutil
import struct
import tempfile
import time
from collections import deque
from pathlib import Path

import nodes
from machines import Machine, call, remove

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
MODULE = '''
import time
import gymnasium
import numpy as np

class Screen(gymnasium.Env):
    """Noise; each step waits, as another program would."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wait_s=0.001, frames=1):
        self.wait_s = wait_s
        self.observation_space = gymnasium.spaces.Box(0, 255, (frames, 84, 84), np.uint8)
        self.frames = np.random.default_rng(1).integers(0, 255, (64, frames, 84, 84), np.uint8)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.frames[0], {}

    def step(self, action):
        if self.wait_s:
            time.sleep(self.wait_s)
        self.steps += 1
        return self.frames[self.steps % 64], float(action), False, self.steps >= 500, {}
'''
TOPOLOGY = """
[run]
env = "screen:Screen"
env_kwargs = {{ wait_s = {wait_s}, frames = {frames} }}
algorithm = "dqn"
stop = {{ minutes = 20 }}

[algorithm]
learning_starts = 500
replay_capacity = 2000
batch_size = 8

[balance]
replay_ratio = 0.005

[components.sampler]
envs = 4
workers = 0
"""


def tun(name):
    """A new TUN device; its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def pass_on(ends, delay_s):
    """Write what one end reads to the other, after the delay, for ever."""
    waiting = {end: deque() for end in ends}
    other = dict(zip(ends, reversed(ends), strict=True))
    while True:
        due_s = min((packets[0][0] for packets in waiting.values() if packets), default=None)
        left_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        for end in select.select(ends, [], [], left_s)[0]:
            with contextlib.suppress(OSError):  # all is read
                for _ in range(64):
                    waiting[other[end]].append((time.monotonic() + delay_s, os.read(end, 65536)))
        now_s = time.monotonic()
        for end, packets in waiting.items():
            while packets and packets[0][0] <= now_s:
                with contextlib.suppress(OSError):  # a device that is not up yet
                    os.write(end, packets.popleft()[1])


@contextlib.contextmanager
def link(arguments, delay_s):
    """The head and a machine with a link between them; removed at the end."""
    own = arguments.network.split(".")[1]
    names = [f"sz{own}-l{number}" for number in range(2)]
    ends = [tun(f"sz{own}-t{number}") for number in range(2)]
    line = multiprocessing.get_context("fork").Process(target=pass_on, args=(ends, delay_s), daemon=True)
    folder = Path(tempfile.mkdtemp())
    try:
        for number, name in enumerate(names):
            device = f"sz{own}-t{number}"
            call("ip", "netns", "add", name)
            call("ip", "link", "set", device, "netns", name, "name", "eth0", "mtu", str(arguments.mtu))
            here, there = (f"{arguments.network}.{1 + (number + away) % 2}" for away in range(2))
            call("ip", "-n", name, "addr", "add", here, "peer", there, "dev", "eth0")
            call("ip", "-n", name, "link", "set", "eth0", "txqueuelen", "10000")
            for each in ("eth0", "lo"):
                call("ip", "-n", name, "link", "set", each, "up")
            if arguments.mbit:
                rate = ("rate", f"{arguments.mbit}mbit", "burst", "64kb", "latency", "100ms")
                call("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)
        line.start()
        addresses = [f"{arguments.network}.{number + 1}" for number in range(2)]
        yield [Machine(name, number, addresses[number], folder) for number, name in enumerate(names)]
    finally:
        remove(names)
        shutil.rmtree(folder, ignore_errors=True)
        if line.is_alive():
            line.kill()
        for end in ends:
            os.close(end)


def main():
    """Print a row for each delay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("delays", type=float, nargs="+", metavar="MS", help="each way")
    parser.add_argument("--mbit", type=float, default=0.0, help="rate each way (default: none)")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--wait-ms", type=float, default=1.0, help="of each step")
    parser.add_argument("--frames", type=int, default=1, help="of 84 x 84 bytes, in an observation")
    parser.add_argument("--seconds", type=float, default=15.0, help="measured of each run")
    parser.add_argument("--samplers", type=int, default=2)
    parser.add_argument("--network", default="10.78.0", help="first numbers of the two addresses")
    parser.add_argument("--set", action="append", default=[], help="as of spreeze-launch")
    arguments = parser.parse_args()
    for delay_ms in arguments.delays:
        with link(arguments, delay_ms / 1000) as machines:
            head = machines[0].tmp
            (head / "screen.py").write_text(MODULE)
            text = TOPOLOGY.format(wait_s=arguments.wait_ms / 1000, frames=arguments.frames)
            (head / "waiting.toml").write_text(text)
            row = nodes.measured(machines, arguments)
            print(json.dumps({"delay_ms": delay_ms, "mbit": arguments.mbit, **row}), flush=True)


if __name__ == "__main__":
    main()
