"""A run on several machines: env steps/s, ratio, lag and account by the number of machines that joined.

Each machine is a namespace with its own network, host name and mounts; the head is one more, which samples
nothing. The environment waits in each step, so that one computer can play all of them. Needs root.

    python tests/benchmarks/nodes.py 1 2 4 8 --wait-ms 10 --seconds 30
    python tests/benchmarks/nodes.py 1 --samplers 8 --hidden 256 --set run.seed=2

``link`` is what the head sends and receives over its network, ``sending`` the share of a core that ZeroMQ's
thread of the learner that publishes the policy takes, ``publication`` its interval and size.
"""

import argparse
import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from spreeze_zmq.wire.channels import SENDING_THREADS

MODULE = '''
import time
import gymnasium
import numpy as np

class Waiting(gymnasium.Env):
    """A point that is pushed towards 0; each step waits, as a robot or another program would."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, wait_s=0.01):
        self.wait_s = wait_s

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.state.copy(), {}

    def step(self, action):
        time.sleep(self.wait_s)
        place, speed = self.state
        speed = np.clip(speed + 0.1 * float(action[0]), -1, 1)
        self.state = np.array([np.clip(place + 0.1 * speed, -10, 10), speed], np.float32)
        self.steps += 1
        return self.state.copy(), -abs(float(place)), False, self.steps >= 100, {}
'''
TOPOLOGY = """
[run]
env = "waiting:Waiting"
env_kwargs = {{ wait_s = {wait_s} }}
algorithm = "sac"
stop = {{ minutes = 20 }}

[algorithm]
hidden_sizes = [{hidden}, {hidden}]
learning_starts = 1000

[balance]
replay_ratio = 1

[components.sampler]
envs = 4
workers = 0
"""


def call(*words):
    """Run a command of the system's."""
    subprocess.run(words, check=True, capture_output=True)


def remove(names):
    """Remove namespaces with all of their processes."""
    for name in names:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        for pid in pids.stdout.split():
            subprocess.run(["kill", "-9", pid], check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextlib.contextmanager
def network(count, first="10.77.0"):
    """A bridge with a namespace for the head and for each machine, whose addresses begin with ``first``;
    removed at the end with all processes.
    """
    own = first.split(".")[1]
    bridge, names = f"sz{own}-br", [f"sz{own}-n{number}" for number in range(count + 1)]
    try:
        call("ip", "link", "add", bridge, "type", "bridge")
        call("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names):
            port = f"sz{own}-{number}"
            call("ip", "netns", "add", name)
            call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            call("ip", "link", "set", port, "master", bridge, "up")
            call("ip", "-n", name, "addr", "add", f"{first}.{number + 1}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                call("ip", "-n", name, "link", "set", device, "up")
        yield names
    finally:
        remove(names)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def statuses(run):
    """The status lines of a run's journal."""
    with contextlib.suppress(FileNotFoundError):
        for line in (run / "metrics.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                if (entry := json.loads(line))["kind"] == "status":
                    yield entry


def wait_for(condition, deadline_s=120):
    """The condition's value, as soon as there is one."""
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        if value := condition():
            return value
        time.sleep(0.1)
    raise TimeoutError(f"nothing in {deadline_s} s")


def link_bytes(name):
    """Bytes that a namespace has sent and received."""
    files = [f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("tx", "rx")]
    said = subprocess.run(["ip", "netns", "exec", name, "cat", *files], capture_output=True, text=True)
    return [int(word) for word in said.stdout.split()]


def sending_s(status):
    """CPU seconds of ZeroMQ's thread of the process that publishes the policy."""
    rows = status["processes"]
    process = psutil.Process(rows.get("actor_learner-0", rows["critic_learner-0"])["pid"])
    names = {thread.id: Path(f"/proc/{process.pid}/task/{thread.id}/comm") for thread in process.threads()}
    return sum(
        thread.user_time + thread.system_time
        for thread in process.threads()
        if names[thread.id].read_text().startswith(SENDING_THREADS)
    )


def marks(run, head):
    """The newest status, the bytes on the head's network and the CPU seconds of who sends, now."""
    status = list(statuses(run))[-1]
    return status, *link_bytes(head), sending_s(status), time.monotonic()


@contextlib.contextmanager
def joined(folder, names, arguments):
    """One run that every machine joins and that trains, stopped at the end; gives its folder, and a list that
    then has the exit codes, the head's first.
    """
    python = [sys.executable, "-m"]
    run, said = folder / "run", folder / "head.out"
    launch = ["spreeze_zmq.commands.launch", folder / "waiting.toml", "--listen", f"{arguments.network}.1"]
    launch += ["--run-dir", run, "--without", "sampler"]
    launch += [word for each in arguments.set for word in ("--set", each)]
    with said.open("w") as output:
        head = subprocess.Popen(
            ["ip", "netns", "exec", names[0], *python, *launch], stdout=output, stderr=output, cwd=folder
        )
    wait_for(lambda: "spreeze join" in said.read_text() or head.poll() is not None)
    assert head.poll() is None, said.read_text()
    address = re.search(r"spreeze join (tcp://[\d.:]+)", said.read_text())[1]
    machines = []
    for name in names[1:]:
        join = [
            *python,
            "spreeze_zmq.commands.spreeze",
            "join",
            address,
            "--samplers",
            str(arguments.samplers),
        ]
        inside = ["unshare", "--uts", "--mount", "ip", "netns", "exec", name]
        with (run / "join.key").open() as key, (folder / f"{name}.out").open("w") as output:
            machines.append(
                subprocess.Popen([*inside, *join], stdin=key, stdout=output, stderr=output, cwd="/")
            )
    wait_for(lambda: any(len(s.get("machines", {})) == len(machines) for s in statuses(run)))
    wait_for(lambda: any(s["state"] == "training" for s in statuses(run)))
    codes = []
    yield run, codes
    head.send_signal(signal.SIGINT)
    codes += [head.wait(60), *(machine.wait(30) for machine in machines)]


def measured(folder, names, arguments):
    """The figures of a run over the last seconds before it is stopped."""
    with joined(folder, names, arguments) as (run, codes):
        time.sleep(5.0)  # until each machine's first rollouts have come
        first, sent, received, cpu_s, began_s = marks(run, names[0])
        time.sleep(arguments.seconds)
        last, *after, end_s = marks(run, names[0])
    summary = json.loads((run / "summary.json").read_text())
    span_s, wall_s = last["t_s"] - first["t_s"], end_s - began_s
    return {
        "machines": len(codes) - 1,
        "samplers": (len(codes) - 1) * arguments.samplers,
        "link": {
            "sent_mb_per_s": round((after[0] - sent) / wall_s / 1e6, 3),
            "received_mb_per_s": round((after[1] - received) / wall_s / 1e6, 3),
        },
        "sending": round((after[2] - cpu_s) / wall_s, 4),
        "publication": last["publication"],
        "blocked": {row["host"]: round(row["blocked"], 2) for row in last["machines"].values()},
        "found": [row["seen"] for row in last["findings"]],
        "env_steps_per_s": (last["env_steps"] - first["env_steps"]) / span_s,
        "replay_ratio": summary["replay_ratio"]["measured"],
        "policy_lag": summary["policy_lag"],
        "samples": summary["samples"],
        "codes": codes,
    }


def each(description, row, *more):
    """Print what ``row`` gives for each number of machines on the command line, with ``more`` options."""
    parser = argparse.ArgumentParser(description=description)
    for name, options in more:
        parser.add_argument(name, **options)
    parser.add_argument("counts", type=int, nargs="+", metavar="N", help="machines beside the head")
    parser.add_argument("--wait-ms", type=float, default=10.0, help="of each step")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured of each run")
    parser.add_argument("--samplers", type=int, default=1, help="on each machine")
    parser.add_argument("--hidden", type=int, default=32, help="units of each of the two layers")
    parser.add_argument("--network", default="10.77.0", help="first numbers of the machines' addresses")
    parser.add_argument("--set", action="append", default=[], help="as of spreeze-launch")
    arguments = parser.parse_args()
    for count in arguments.counts:
        with tempfile.TemporaryDirectory() as place, network(count, arguments.network) as names:
            folder = Path(place)
            (folder / "waiting.py").write_text(MODULE)
            text = TOPOLOGY.format(wait_s=arguments.wait_ms / 1000, hidden=arguments.hidden)
            (folder / "waiting.toml").write_text(text)
            print(json.dumps(row(folder, names, arguments)), flush=True)


if __name__ == "__main__":
    each(__doc__, measured)
