"""Machines on one computer: namespaces with a network, host name, process ids and /tmp of their own.

What one of them has in its /tmp, as the head its run, no other sees. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

#: A program of this package, by its module's name.
PROGRAM = "spreeze_zmq.commands."


def call(*words):
    """Run a command of the system's."""
    subprocess.run(words, check=True, capture_output=True)


def wait_for(condition, deadline_s=120, every_s=0.1):
    """The condition's value, as soon as there is one."""
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        if value := condition():
            return value
        time.sleep(every_s)
    raise TimeoutError(f"nothing in {deadline_s} s")


def remove(names):
    """Remove namespaces with all of their processes."""
    for name in names:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
        for pid in pids.stdout.split():
            subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Machine:
    """One computer, until its namespace is removed.

    Args:
        name: of a namespace of the network.
        number: becomes the host's name, desk0 and so on.
        address: of its only device.
        folder: its /tmp is a folder below; processes here see that as ``tmp``.
    """

    def __init__(self, name, number, address, folder):
        self.name, self.host, self.address = name, f"desk{number}", address
        self.tmp = folder / f"tmp{number}"
        self.tmp.mkdir()
        self.boot()

    def boot(self):
        """Have it up, with nothing running."""
        inside = f"mount --bind {self.tmp} /tmp; hostname {self.host}; echo; sleep infinity & wait"
        apart = ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        start = ["ip", "netns", "exec", self.name, *apart, "sh", "-c", inside]
        self._anchor = subprocess.Popen(start, stdout=subprocess.PIPE)
        self._anchor.stdout.readline()
        self._first = psutil.Process(self._anchor.pid).children()[0].pid
        self._idle = set(wait_for(lambda: len(self._pids()) >= 2 and self._pids()))

    def command(self, *words):
        """The command line that runs there."""
        inside = ("-m", "-u", "-n", "-p", "--wd=/tmp")
        return ["nsenter", "-t", str(self._first), *inside, *map(str, words)]

    def start(self, *words, **more):
        """Start a program of this package there."""
        python = (sys.executable, "-m", f"{PROGRAM}{words[0]}")
        return Program(self.command(*python, *words[1:]), **more)

    def processes(self):
        """The command lines there, by process id as seen from here."""
        found = {}
        for pid in set(self._pids()) - self._idle:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return {pid: line for pid, line in found.items() if line and not line.startswith("nsenter")}

    def find(self, word):
        """The process ids there whose command line has a word."""
        return [pid for pid, line in self.processes().items() if word in line]

    def signal(self, number, word=""):
        """Send a signal to all processes there, or to those whose command line has a word."""
        for pid in self.find(word):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def die(self):
        """All of it at once, as without power."""
        os.kill(self._first, signal.SIGKILL)
        self._anchor.wait()

    def cut(self, *, off=True):
        """Take its cable out of the bridge, where nobody is told, or connect it again."""
        place = self.name.removeprefix("sz").split("-n")
        port, bridge = f"sz{'-'.join(place)}", f"sz{place[0]}-br"
        call("ip", "link", "set", port, *(("nomaster",) if off else ("master", bridge)))

    def seen(self, pid):
        """A process id there, as seen from here."""
        for one in self._pids():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{one}/status").read_text()
                if f"\nNSpid:\t{one}\t{pid}\n" in status:
                    return one
        raise ProcessLookupError(pid)

    def _pids(self):
        said = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        return list(map(int, said.stdout.split()))


class Program:
    """A process on a machine; ``nsenter`` waits for it here."""

    def __init__(self, command, **more):
        self._outer = subprocess.Popen(command, **more)
        outer = psutil.Process(self._outer.pid)
        inner = wait_for(lambda: self._outer.poll() is not None or outer.children(), every_s=0.01)
        self.pid = inner[0].pid if isinstance(inner, list) else 0

    def poll(self):
        """Its exit code; None while it lives."""
        return self._outer.poll()

    def wait(self, timeout_s):
        """Its exit code, once it has ended."""
        return self._outer.wait(timeout_s)

    def signal(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)


@contextlib.contextmanager
def network(count, first, kind=Machine):
    """A bridge with the head and ``count`` machines, whose addresses begin with ``first``; removed at the end
    with all processes and files. Programs here reach them too.
    """
    own = first.split(".")[1]
    bridge, names = f"sz{own}-br", [f"sz{own}-n{number}" for number in range(count + 1)]
    folder = Path(tempfile.mkdtemp())
    try:
        call("ip", "link", "add", bridge, "type", "bridge")
        call("ip", "addr", "add", f"{first}.254/24", "dev", bridge)
        call("ip", "link", "set", bridge, "up")
        for number, name in enumerate(names):
            call("ip", "netns", "add", name)
            port = f"sz{own}-{number}"
            call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            call("ip", "-n", name, "addr", "add", f"{first}.{number + 1}/24", "dev", "eth0")
            call("ip", "link", "set", port, "up")
            for device in ("eth0", "lo"):
                call("ip", "-n", name, "link", "set", device, "up")
            call("ip", "link", "set", port, "master", bridge)
        addresses = [f"{first}.{number + 1}" for number in range(count + 1)]
        yield [kind(name, number, addresses[number], folder) for number, name in enumerate(names)]
    finally:
        remove(names)
        shutil.rmtree(folder, ignore_errors=True)
        for device in (*(f"sz{own}-{number}" for number in range(count + 1)), bridge):
            subprocess.run(["ip", "link", "del", device], capture_output=True, check=False)
