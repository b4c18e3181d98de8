"""``python -m spreeze_zmq.nodes.by_ray ADDRESS HEAD [LABEL=VALUE...] < join.key``: Ray places, and no more.

On every other node of a Ray cluster it has an actor that keeps one ``spreeze join`` running. That process is
apart from Ray's own, so that a run goes on with the machines that it has where Ray fails; it ends with the
run, or when the head has been silent. Of the run's data only the key passes through Ray.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq.plan.roles import MOST_LENT

#: How often the cluster is looked at for new nodes, and how soon after its end a join is tried again.
LOOK_S, AGAIN_S = 2.0, 5.0
#: How soon it is tried again to find a cluster, and after which time it is said what a node is waited for.
FIND_S, SAID_AFTER_S = 10.0, 30.0
#: Lines for the user begin so; the rest of this program's output is Ray's own.
SAYS = "ray: "
#: Exit codes of ``spreeze join`` after which it is not started again: the machine was taken back, or refused.
FINAL = (0, 2)


class Agent:
    """On a node, as an actor; Ray carries this class there as code, since the package may be missing there.

    The folder is locked by ``spreeze join`` as long as that lives. Where an earlier actor's does, this one
    waits for its end instead of starting another. What is left of it, the next run sweeps.
    """

    def run(self, head: str, key: str, samplers: int) -> tuple[int, str]:
        """Start ``spreeze join`` and wait for its end; returns its exit code and its last line."""
        import fcntl
        import hashlib
        import importlib.util
        import os
        from pathlib import Path

        if importlib.util.find_spec("spreeze_zmq") is None:
            return 2, f"there is no spreeze_zmq for {sys.executable}: install it there"
        mine = Path(f"/tmp/spreeze-{os.getuid()}")
        folder = mine / f"ray-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        mine.mkdir(mode=0o700, exist_ok=True)
        if mine.lstat().st_uid != os.getuid() or mine.is_symlink():
            return 2, f"{mine} there is not this user's"
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._start(folder, lock.fileno(), head, key, samplers)
            except BlockingIOError:
                pass
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._ended(folder)

    def _start(self, folder: Any, lock: int, head: str, key: str, samplers: int) -> None:
        """In a session of its own and as no child of this process, since Ray ends those."""
        import subprocess

        (folder / "code").unlink(missing_ok=True)
        join = ("-P", "-m", "spreeze_zmq.commands.spreeze", "join", head, "--samplers", str(samplers))
        script = 'exec 3<&0; ("$@" <&3 3<&- >log 2>&1; echo $? >code) >/dev/null 2>&1 &'
        subprocess.run(
            ("/bin/sh", "-c", script, "sh", sys.executable, *join),
            input=key.encode(),
            cwd=folder,
            pass_fds=(lock,),
            start_new_session=True,
            check=True,
        )

    def _ended(self, folder: Any) -> tuple[int, str]:
        import shutil

        try:
            code = int((folder / "code").read_text())
            said = (folder / "log").read_text(errors="replace").split("\n")
        except (OSError, ValueError):
            code, said = 3, ["spreeze join was killed"]
        shutil.rmtree(folder, ignore_errors=True)
        return code, next((line for line in reversed(said) if line.strip()), f"exit code {code}")


class Placed:
    """One node and its actor.

    Args:
        ray: the module.
        node: its row of ``ray.nodes()``.
        given: the arguments of :meth:`Agent.run` but the last one.
    """

    def __init__(self, ray: Any, node: Mapping[str, Any], given: Sequence[str]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray, self.host = ray, str(node["NodeManagerHostname"])
        self._cpus = int(node["Resources"]["CPU"])
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        options = {"num_cpus": self._cpus, "scheduling_strategy": there, "max_restarts": 0}
        self._agent = ray.remote(Agent).options(**options).remote()
        self._begun = self._agent.__ray_ready__.remote()
        self.ended = self._agent.run.remote(*given, min(self._cpus, MOST_LENT))
        self._said_s, self.is_over, self.again_s = time.monotonic() + SAID_AFTER_S, False, 0.0

    def check_begun(self) -> None:
        """Say once that the actor waits for the node's CPUs."""
        if time.monotonic() < self._said_s:
            return
        self._said_s = float("inf")
        if not self._ray.wait([self._begun], timeout=0)[0]:
            say(f"{self.host} joins when Ray has {self._cpus} CPUs free there: see ray status")

    def end(self) -> None:
        """Say how ``spreeze join`` or the actor ended, and whether to try again."""
        try:
            code, line = self._ray.get(self.ended)
        except self._ray.exceptions.RayError as error:  # of a node that died, as far as Ray knows
            code, line = 3, f"what runs there goes on, but Ray says: {str(error).splitlines()[0]}"
        self._ray.kill(self._agent)
        self.is_over, self.again_s = True, time.monotonic() + AGAIN_S
        if code in FINAL:
            self.again_s = float("inf")
        say(f"{self.host}: {line}")


def say(line: str) -> None:
    """Print a line for the user."""
    print(SAYS + line, flush=True)


def connect(address: str) -> Any:
    """Connect to the cluster, whenever there is one; returns the module ``ray``."""
    import ray

    has_said = False
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (OSError, RuntimeError, ValueError) as error:
            if not has_said:
                say(f"no cluster at {address}, it is tried again: {str(error).splitlines()[0]}")
            has_said = True
            ray.shutdown()
            time.sleep(FIND_S)
        else:
            return ray


def fits(node: Mapping[str, Any], here: str, labels: Mapping[str, str]) -> bool:
    """Whether a node is another one than ``here``, lives, has CPUs and has the labels."""
    has_cpus = int(node["Resources"].get("CPU", 0)) > 0
    return bool(
        node["Alive"] and node["NodeID"] != here and has_cpus and labels.items() <= node["Labels"].items()
    )


def main() -> None:
    """Place until this process is ended."""
    address, head, *pairs = sys.argv[1:]
    key = sys.stdin.read()
    labels = dict(pair.split("=", 1) for pair in pairs)
    ray = connect(address)
    here = ray.get_runtime_context().get_node_id()
    placed: dict[str, Placed] = {}
    while True:
        for node in ray.nodes():
            one = placed.get(node["NodeID"])
            is_due = one is None or (one.is_over and time.monotonic() >= one.again_s)
            if is_due and fits(node, here, labels):
                placed[node["NodeID"]] = Placed(ray, node, (head, key))
        waiting = {one.ended: one for one in placed.values() if not one.is_over}
        for one in waiting.values():
            one.check_begun()
        if not waiting:
            time.sleep(LOOK_S)
            continue
        for ended in ray.wait(list(waiting), timeout=LOOK_S)[0]:
            waiting[ended].end()


if __name__ == "__main__":
    main()
