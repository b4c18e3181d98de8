"""One real process with fake peers: the test holds the other ends of its channels."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from spreeze_zmq import algorithms
from spreeze_zmq.plan import sizing, topology
from spreeze_zmq.run.folder import RunFolder, write_plan
from spreeze_zmq.wire import channels

ROOT = Path(__file__).parents[2]
OTHER_END = {"push": "pull", "pull": "push", "pub": "sub", "sub": "pub"}
DEADLINE_S = 60.0
#: What a measurement found that no test waits for: 256 suffice.
CURVES = sizing.Curves({64: 5e4, 128: 1e5, 256: 2e5, 512: 2.1e5}, "flat", {}, 0.0)


class Peers:
    """A run without processes: starts one, and plays everybody else."""

    def __init__(self, folder, overrides=()):
        plan = topology.load("pendulum", ["run.stop.minutes=1", *overrides])
        if plan.to_measure:
            plan = sizing.resolved(plan, CURVES, "as the test says")
        self.plan, self.sockets = write_plan(plan, RunFolder.create(plan.name, str(folder)))
        self.folder = RunFolder(Path(self.plan.run_dir))
        self.open = {}
        self.processes = []
        self.seen = []

    def start(self, role, index=0):
        """Start one component as the launcher would."""
        command = [sys.executable, str(ROOT / "components" / role), str(self.folder.run_file), str(index)]
        log = (self.folder.logs / f"{role}-{index}.log").open("a")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        log.close()
        return self.processes[-1]

    def peer(self, channel, role, sender="peer-0"):
        """The end of ``channel`` that ``role`` does not hold."""
        if channel not in self.open:
            end = OTHER_END[self.plan.components[role].channels[channel]]
            self.open[channel] = channels.open_channel(self.plan.channels[channel], end, sender, 1)
        return self.open[channel]

    def wait(self, channel, role, kind=None, meanwhile=lambda: None, deadline_s=DEADLINE_S):
        """The next message of a channel (of ``kind``); fails after the deadline with the process's log."""
        peer = self.peer(channel, role)
        take = getattr(peer, "pull", None) or peer.receive
        until_s = time.monotonic() + deadline_s
        while time.monotonic() < until_s:
            meanwhile()
            publishers = [p for p in self.open.values() if isinstance(p, channels.Publisher)]
            channels.poll([peer, *publishers], timeout_s=0.05)
            while (message := take()) is not None:
                self.seen.append(message)
                if kind in (None, message.kind):
                    return message
        raise AssertionError(f"no {kind or 'message'} on {channel} in {deadline_s} s; logs:\n{self.logs()}")

    def logs(self):
        """Everything that the processes said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.logs.iterdir()))

    def close(self):
        """Leave nothing behind."""
        for process in self.processes:
            process.kill()
            process.wait()
        for channel in self.open.values():
            channel.close()
        self.sockets.remove()


@pytest.fixture
def peers(tmp_path, request):
    """A run of the pendulum topology, with a test's overrides, whose processes the test starts one by one."""
    made = Peers(tmp_path / "run", getattr(request, "param", ()))
    yield made
    made.close()


@pytest.fixture
def halves(peers):
    """The run's algorithm: its options, and both halves."""
    algorithm = algorithms.get("sac")
    values = {name: value for name, value in peers.plan.algorithm.items() if name != "name"}
    options = algorithms.options_from(algorithm.Options, values)
    environment = peers.plan.environment
    return algorithms.make("critic", algorithm, options, environment, "cpu", 1), algorithms.make(
        "policy", algorithm, options, environment, "cpu", 1
    )
