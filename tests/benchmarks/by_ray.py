"""A run that a real Ray cluster places on two machines: whether it trains, and what is left when Ray dies.

Each machine is a namespace with its own network, host name and /tmp; the head is one more, which samples
nothing. Needs root and Ray (``pip install 'spreeze_zmq[ray]'``).

    python tests/benchmarks/by_ray.py
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nodes import MODULE, TOPOLOGY, network, statuses, wait_for

ADDRESSES, PORT = "10.79.0", 6379
#: Time after which nothing of a run may live whose head has died.
GONE_S = 12.0


class Machine:
    """A namespace with a host name and a /tmp of its own, which lives as long as ``anchor``."""

    def __init__(self, number, name, folder):
        self.name, self.tmp = name, folder / f"tmp{number}"
        self.tmp.mkdir()
        self.host, self.address = f"desk{number}", f"{ADDRESSES}.{number + 1}"
        inside = f"mount --bind {self.tmp} /tmp; hostname {self.host}; echo; exec sleep infinity"
        start = ["unshare", "--uts", "--mount", "ip", "netns", "exec", name, "sh", "-c", inside]
        self.anchor = subprocess.Popen(start, stdout=subprocess.PIPE)
        self.anchor.stdout.readline()

    def command(self, *words):
        """The command line that runs there."""
        return ["nsenter", "-t", str(self.anchor.pid), "-m", "-u", "-n", "--wd=/", *map(str, words)]

    def processes(self):
        """The command lines there, by process id."""
        found = {}
        pids = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        for pid in map(int, pids.stdout.split()):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def find(self, word):
        """The process ids there whose command line has a word."""
        return [pid for pid, line in self.processes().items() if word in line]

    def start_ray(self, cpus):
        """Make it a node of the cluster; returns the seconds that this takes."""
        is_head = self.address.endswith(".1")
        where = ("--head", f"--port={PORT}", "--include-dashboard=false")
        where = where if is_head else (f"--address={ADDRESSES}.1:{PORT}",)
        ray = Path(sys.executable).with_name("ray")
        words = (ray, "start", *where, f"--node-ip-address={self.address}", f"--num-cpus={cpus}")
        began_s = time.monotonic()
        memory = ("--object-store-memory=80000000", "--temp-dir=/tmp/ray")
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
        subprocess.run(self.command(*words, *memory), check=True, capture_output=True, env=environment)
        return time.monotonic() - began_s

    def kill_ray(self):
        """Kill all of Ray's processes there, and only those."""
        for pid, line in self.processes().items():
            if "site-packages/ray/" in line or line.startswith("ray::"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Run:
    """A run on the first machine that Ray places on the others."""

    def __init__(self, folder, name, machines):
        self.head, self.others = machines[0], machines[1:]
        self.folder, self.out = self.head.tmp / name, folder / f"{name}.out"
        words = ["launch", "/tmp/mine/waiting.toml", "--listen", self.head.address, "--nodes", "ray"]
        words += ["--run-dir", f"/tmp/{name}", "--without", "sampler"]
        words[0] = f"spreeze_zmq.commands.{words[0]}"
        began_s = time.monotonic()
        with self.out.open("w") as output:
            self.process = subprocess.Popen(
                self.head.command(sys.executable, "-m", *words), stdout=output, stderr=output
            )
        wait_for(lambda: len(self.newest().get("machines", {})) == len(self.others))
        self.joined_s = time.monotonic() - began_s
        wait_for(lambda: self.newest().get("state") == "training")
        self.training_s = time.monotonic() - began_s

    def newest(self):
        """The newest status."""
        return ([{}, *statuses(self.folder)])[-1]

    def goes_on(self):
        """Wait for a thousand more env steps; returns the machines then."""
        before = self.newest()["env_steps"]
        wait_for(lambda: self.newest()["env_steps"] > before + 1000)
        return [row["host"] for row in self.newest()["machines"].values()]

    def joins(self):
        """The process ids of ``spreeze join`` on each machine."""
        return [machine.find("-m spreeze_zmq.commands.spreeze join") for machine in self.others]

    def gone_s(self, machines, began_s):
        """The seconds until no process of the run is left on any machine."""
        wait_for(lambda: not any(machine.find("spreeze") for machine in machines))
        return time.monotonic() - began_s


def ended_in_order(folder, machines):
    """A run to its end by Ctrl-C: what it took, and what is left of it."""
    run = Run(folder, "first", machines)
    run.goes_on()
    began_s = time.monotonic()
    os.kill(run.head.find("commands.launch")[-1], signal.SIGINT)
    code = run.process.wait(60)
    summary = json.loads((run.folder / "summary.json").read_text())
    return {
        "joined_s": run.joined_s,
        "training_s": run.training_s,
        "code": code,
        "ended_s": run.gone_s(machines, began_s),
        "samples": summary["samples"],
        "failures": summary["failures"],
        "names": re.findall("; it runs (.*)", run.out.read_text()),
        "left": [sorted(path.name for path in (m.tmp / "spreeze-0").iterdir()) for m in machines[1:]],
    }


def killed(folder, machines):
    """A run whose placer, whose first machine's Ray, the cluster and at last its launcher are killed."""
    run = Run(folder, "second", machines)
    before, figures = run.joins(), {}
    os.kill(run.head.find("spreeze_zmq.nodes.by_ray")[-1], signal.SIGKILL)
    wait_for(lambda: "it is tried again" in run.out.read_text())
    figures["placer killed"] = run.goes_on()
    machines[1].kill_ray()
    wait_for(lambda: f"ray: {machines[1].host}: what runs there goes on" in run.out.read_text())
    figures["Ray of one machine killed"] = run.goes_on()
    machines[0].kill_ray()
    wait_for(lambda: not machines[2].find("raylet"))
    figures["Ray's head killed"] = run.goes_on()
    for number, machine in enumerate(machines):
        machine.kill_ray()
        machine.start_ray(number)
    wait_for(lambda: all(machine.find("ray::Agent.run") for machine in machines[1:]))
    figures["Ray back"] = run.goes_on()
    figures["failures"] = run.newest()["num_failures"]
    figures["the same processes all the time"] = run.joins() == before
    began_s = time.monotonic()
    os.kill(run.head.find("commands.launch")[-1], signal.SIGKILL)
    figures["launcher killed, nothing left after s"] = run.gone_s(machines, began_s)
    assert figures["launcher killed, nothing left after s"] < GONE_S
    return figures


def main():
    """Print the figures of both runs."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if importlib.util.find_spec("ray") is None:
        sys.exit("Ray is not installed: pip install 'spreeze_zmq[ray]'")
    with tempfile.TemporaryDirectory() as place, network(2, ADDRESSES) as names:
        folder = Path(place)
        machines = [Machine(number, name, folder) for number, name in enumerate(names)]
        mine = machines[0].tmp / "mine"
        mine.mkdir()
        (mine / "waiting.py").write_text(MODULE)
        (mine / "waiting.toml").write_text(TOPOLOGY.format(wait_s=0.01, hidden=32))
        figures = {"ray start s": [machine.start_ray(number) for number, machine in enumerate(machines)]}
        print(json.dumps(figures), flush=True)
        for measure in (ended_in_order, killed):
            print(json.dumps({measure.__name__: measure(folder, machines)}), flush=True)


if __name__ == "__main__":
    main()
