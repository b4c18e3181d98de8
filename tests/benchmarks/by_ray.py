"""A run that a real Ray cluster places on two machines: whether it trains, and what is left when Ray dies.

The machines are those of ``machines.py``, with a head that samples nothing. In the second run the cluster is
named by its address, and only nodes with a label are asked for. Needs root and Ray
(``pip install 'spreeze_zmq[ray]'``).

    python tests/benchmarks/by_ray.py
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import machines as computers
from machines import PROGRAM, network, wait_for
from nodes import MODULE, TOPOLOGY, launched, statuses

ADDRESSES, PORT = "10.79.0", 6379
#: Time after which nothing of a run may live whose head has died.
GONE_S = 12.0


class Machine(computers.Machine):
    """One with Ray."""

    def start_ray(self, cpus, label=""):
        """Make it a node of the cluster; returns the seconds that this takes."""
        is_head = self.address.endswith(".1")
        where = ("--head", f"--port={PORT}", "--include-dashboard=false")
        where = where if is_head else (f"--address={ADDRESSES}.1:{PORT}",)
        ray = Path(sys.executable).with_name("ray")
        words = (ray, "start", *where, f"--node-ip-address={self.address}", f"--num-cpus={cpus}")
        began_s = time.monotonic()
        memory = (
            "--object-store-memory=80000000",
            "--temp-dir=/tmp/ray",
            *([f"--labels={label}"] * bool(label)),
        )
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

    def __init__(self, machines, nodes="ray"):
        self.head, self.others = machines[0], machines[1:]
        shutil.rmtree(self.head.tmp / "run", ignore_errors=True)
        began_s = time.monotonic()
        listen = ("--listen", self.head.address, "--nodes", nodes)
        self.process, self.folder, _ = launched(self.head, *listen)
        self.out = self.head.tmp / "head.out"
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
        return [machine.find(f"-m {PROGRAM}spreeze join") for machine in self.others]

    def gone_s(self, machines, began_s):
        """The seconds until no process of the run is left on any machine."""
        wait_for(lambda: not any(machine.find("spreeze") for machine in machines))
        return time.monotonic() - began_s

    def ends(self, machines):
        """End it by Ctrl-C: its exit code, and the seconds until nothing is left."""
        began_s = time.monotonic()
        self.process.signal(signal.SIGINT)
        return {"code": self.process.wait(60), "ended_s": self.gone_s(machines, began_s)}


def ended_in_order(machines):
    """A run to its end by Ctrl-C: what it took, and what is left of it."""
    run = Run(machines)
    run.goes_on()
    ended = run.ends(machines)
    summary = json.loads((run.folder / "summary.json").read_text())
    return {
        "joined_s": run.joined_s,
        "training_s": run.training_s,
        **ended,
        "samples": summary["samples"],
        "failures": summary["failures"],
        "names": re.findall("; it runs (.*)", run.out.read_text()),
        "left": [sorted(path.name for path in (m.tmp / "spreeze-0").iterdir()) for m in machines[1:]],
    }


def labelled(machines):
    """A run that asks for nodes with a label, which at first one machine has, and later the other one too."""
    head, first, second = machines
    second.kill_ray()
    first.kill_ray()
    first.start_ray(1, "place=left")
    second.start_ray(2, "place=right")
    run = Run([head, first], f"ray:{head.address}:{PORT},place=left")
    figures = {"with one": run.goes_on()}
    second.kill_ray()
    second.start_ray(2, "place=left")
    wait_for(lambda: len(run.newest()["machines"]) == 2)
    figures["with both"] = run.goes_on()
    return {**figures, **run.ends(machines)}


def killed(machines):
    """A run whose placer, whose first machine's Ray, the cluster and at last its launcher are killed."""
    run = Run(machines)
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
    run.process.signal(signal.SIGKILL)
    figures["launcher killed, nothing left after s"] = run.gone_s(machines, began_s)
    assert figures["launcher killed, nothing left after s"] < GONE_S
    return figures


def main():
    """Print the figures of both runs."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if importlib.util.find_spec("ray") is None:
        sys.exit("Ray is not installed: pip install 'spreeze_zmq[ray]'")
    with network(2, ADDRESSES, Machine) as machines:
        (machines[0].tmp / "waiting.py").write_text(MODULE)
        (machines[0].tmp / "waiting.toml").write_text(TOPOLOGY.format(wait_s=0.01, hidden=32))
        figures = {"ray start s": [machine.start_ray(number) for number, machine in enumerate(machines)]}
        print(json.dumps(figures), flush=True)
        for measure in (ended_in_order, labelled, killed):
            print(json.dumps({measure.__name__: measure(machines)}), flush=True)


if __name__ == "__main__":
    main()
