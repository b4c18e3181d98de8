"""A run on several machines: env steps/s, ratio, lag and account by the number of machines that joined.

The machines are those of ``machines.py``, with a head that samples nothing. The environment waits in each
step, so that one computer can play all of them. Needs root.

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
import time
from pathlib import Path

import psutil
from machines import network, wait_for

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


def statuses(run):
    """The status lines of a run's journal."""
    with contextlib.suppress(FileNotFoundError):
        for line in (run / "metrics.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                if (entry := json.loads(line))["kind"] == "status":
                    yield entry


def link_bytes(machine):
    """Bytes that a machine has sent and received."""
    files = [f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("tx", "rx")]
    inside = ["ip", "netns", "exec", machine.name, "cat", *files]
    return [int(word) for word in subprocess.run(inside, capture_output=True, text=True).stdout.split()]


def sending_s(status, head):
    """CPU seconds of ZeroMQ's thread of the process that publishes the policy."""
    rows = status["processes"]
    process = psutil.Process(head.seen(rows.get("actor_learner-0", rows["critic_learner-0"])["pid"]))
    names = {thread.id: Path(f"/proc/{process.pid}/task/{thread.id}/comm") for thread in process.threads()}
    return sum(
        thread.user_time + thread.system_time
        for thread in process.threads()
        if names[thread.id].read_text().startswith(SENDING_THREADS)
    )


def marks(run, head):
    """The newest status, the bytes on the head's network and the CPU seconds of who sends, now."""
    status = list(statuses(run))[-1]
    return status, *link_bytes(head), sending_s(status, head), time.monotonic()


def launched(head, *more, run="run", **how):
    """A run on the head; returns its program, its folder, and the address at which machines join. Its output
    is in ``head.out``.
    """
    words = ["launch", "/tmp/waiting.toml", "--run-dir", f"/tmp/{run}", "--without", "sampler"]
    run, said = head.tmp / run, head.tmp / "head.out"
    with said.open("w") as output:
        program = head.start(*words, *more, stdout=output, stderr=output, **how)
    wait_for(lambda: "spreeze join" in said.read_text() or program.poll() is not None)
    assert program.poll() is None, said.read_text()
    return program, run, re.search(r"spreeze join (tcp://[\d.:]+)", said.read_text())[1]


def join(machine, address, run, samplers):
    """Have a machine join by the line as printed."""
    with (run / "join.key").open() as key, (machine.tmp / "join.out").open("w") as output:
        words = ("spreeze", "join", address, "--samplers", str(samplers))
        return machine.start(*words, stdin=key, stdout=output, stderr=output)


@contextlib.contextmanager
def joined(machines, arguments):
    """One run that every machine joins and that trains, stopped at the end; gives its folder, and a list that
    then has the exit codes, the head's first.
    """
    head, *others = machines
    more = [word for each in arguments.set for word in ("--set", each)]
    program, run, address = launched(head, "--listen", head.address, *more)
    halves = [join(machine, address, run, arguments.samplers) for machine in others]
    wait_for(lambda: any(len(s.get("machines", {})) == len(halves) for s in statuses(run)))
    wait_for(lambda: any(s["state"] == "training" for s in statuses(run)))
    codes = []
    yield run, codes
    program.signal(signal.SIGINT)
    codes += [program.wait(60), *(half.wait(30) for half in halves)]


def measured(machines, arguments):
    """The figures of a run over the last seconds before it is stopped."""
    with joined(machines, arguments) as (run, codes):
        time.sleep(5.0)  # until each machine's first rollouts have come
        first, sent, received, cpu_s, began_s = marks(run, machines[0])
        time.sleep(arguments.seconds)
        last, *after, end_s = marks(run, machines[0])
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
        with network(count, arguments.network) as machines:
            head = machines[0].tmp
            (head / "waiting.py").write_text(MODULE)
            text = TOPOLOGY.format(wait_s=arguments.wait_ms / 1000, hidden=arguments.hidden)
            (head / "waiting.toml").write_text(text)
            print(json.dumps(row(machines, arguments)), flush=True)


if __name__ == "__main__":
    each(__doc__, measured)
