"""This machine: its cores and processor, this library's folders on it, and what was measured on it before.

Measurements are kept in the user's cache: one small JSON file for each subject, which is everything that the
figures depend on, the machine included. A file that cannot be read, and a cache that cannot be written, cost
one warning: runs do without.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import logging
import os
import platform
import resource
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeVar

from spreeze_zmq.base.errors import NoHome
from spreeze_zmq.base.files import home, replacing
from spreeze_zmq.base.once import digest
from spreeze_zmq.base.quota import quota_cores

log = logging.getLogger("spreeze")

FoundT = TypeVar("FoundT")

#: Open files that a process asks for. Children inherit it, and some programs try to close all that there may
#: be: the hard limit of a container can be 10^9.
MOST_FILES = 1 << 16
#: What /proc/cpuinfo has of a core in place of a name, on ARM, RISC-V and POWER.
CORE_KINDS = ("CPU implementer", "CPU variant", "CPU part", "mvendorid", "marchid", "mimpid", "cpu")

# --- folders


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/spreeze_zmq``, by default ``~/.cache/spreeze_zmq``. Raises NoHome."""
    return base_folder("XDG_CACHE_HOME", ".cache") / "spreeze_zmq"


def state_folder() -> Path:
    """``$XDG_STATE_HOME/spreeze_zmq``, by default ``~/.local/state/spreeze_zmq``. Raises NoHome."""
    return base_folder("XDG_STATE_HOME", ".local/state") / "spreeze_zmq"


def base_folder(variable: str, default: str) -> Path:
    """A folder of the XDG specification: where ``variable`` says, else below the home. Raises NoHome."""
    chosen = os.environ.get(variable, "")
    return Path(chosen) if os.path.isabs(chosen) else home() / default


@cache
def shipped_folder(name: str) -> Path:
    """The folder ``components`` or ``launch`` of the checkout that this module is in, else of the wheel."""
    root = Path(__file__).absolute().parents[2]
    if (root / "setup.cfg").is_file():
        return root / name
    spec = importlib.util.find_spec(f"spreeze_zmq.{name}")
    found = list(spec.submodule_search_locations or ()) if spec else []
    return Path(found[0]).absolute() if found else root / name


# --- processor


@cache
def processor(path: str = "/proc/cpuinfo") -> Mapping[str, str]:
    """The properties of the first processor; none if the file cannot be read."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    return dict(reversed(pairs))


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The instruction set flags of the first processor, which ARM calls features."""
    found = processor(path)
    return frozenset((found.get("flags") or found.get("Features", "")).split())


def cpu_model(path: str = "/proc/cpuinfo") -> str:
    """The model of the processor; where it has no name, as on ARM, the numbers of all kinds of its cores."""
    if named := processor(path).get("model name"):
        return named
    kinds: dict[str, None] = {}
    with contextlib.suppress(OSError):
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        for key, _, value in (line.partition(":") for line in lines):
            if key.strip() in CORE_KINDS:
                kinds[f"{key.strip()} {value.strip()}"] = None
    return ", ".join((platform.machine(), *kinds))


# --- what was measured before


def recall(subject: Mapping[str, Any], read: Callable[[Any], FoundT]) -> FoundT | None:
    """The figures kept for a subject; None where there are none, or none that can be read.

    Args:
        subject: anything that JSON can hold.
        read: converts the JSON value of ``remember``; raises ValueError, KeyError or TypeError where it makes
            no sense.
    """
    try:
        path = file_of(subject)
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["of"] != json.loads(json.dumps(subject)):  # JSON has no tuples
            raise ValueError("it is about another machine or run")
        return read(values["found"])
    except (FileNotFoundError, NotADirectoryError, PermissionError, NoHome):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s is passed over: %s; delete it, or let `spreeze tune` write it again", path, error)
        return None


def remember(subject: Mapping[str, Any], found: Any) -> Path | None:
    """Keep figures; returns their file, or None where it cannot be written."""
    try:
        path = file_of(subject)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as beside:
            beside.write_text(json.dumps({"of": subject, "found": found}, indent=1) + "\n")
    except OSError as error:
        log.warning("what was measured is not kept: %s", error)
        return None
    return path


def file_of(subject: Mapping[str, Any]) -> Path:
    return cache_folder() / f"{digest(json.dumps(subject, sort_keys=True))}.json"


# --- what runs beside each other share


def claim(name: str) -> socket.socket | None:
    """What gives a name of this machine to this process until it is closed, or the process ends; None where
    another process has it, of whichever user. Where the system has no such names, each process has it.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0spreeze-{name}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            held.close()
            return None
    return held


# --- open files


def allow_open_files() -> None:
    """Raise this process's limit of open files: a broker has two for each sampler, and shells allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# --- cores


def core_time(pid: int = 0) -> float:
    """CPU seconds a second for a process, by default this one: those of its affinity, or of this process's
    quota if that is lower. What is busy, idle or one's share is measured by it.
    """
    cores, quota = len(os.sched_getaffinity(pid)), quota_cores()
    return float(cores if quota is None else min(cores, quota))


def available_cores() -> int:
    """Whole cores for this process, to count by: a quota of 1.4 cores or less counts as 1, of 1.6 as 2."""
    return max(1, round(core_time()))


def usable_cores(cpus: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """The cores that parts of a run may divide among themselves: the physical ones of ``cpus``, see
    ``physical_cores``; under a lower quota as many CPUs as it pays for, each on another core where there are
    enough. These begin anywhere, as another container may have the same CPUs.
    """
    cores, quota = physical_cores(cpus, system), quota_cores()
    if quota is None or quota >= len(cpus):
        return cores
    first = secrets.randbelow(len(cores))
    in_turn = chain.from_iterable(zip_longest(*cores[first:], *cores[:first]))
    return [[cpu] for cpu in in_turn if cpu is not None][: max(1, round(quota))]


def physical_cores(cpus: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """Group CPUs by physical core, the fastest kind of cores first; one core per CPU if ``system`` has no
    topology.
    """
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        path = system / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings = path.read_text(encoding="ascii").strip()
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    speeds = {siblings: _speed(own[0], system) for siblings, own in cores.items()}
    fastest = max(speeds.values(), default=0) or 1
    # Cores of one kind may differ by some percent, and stay in the order in which they share caches.
    return [cores[name] for name in sorted(cores, key=lambda name: -round(10 * speeds[name] / fastest))]


def _speed(cpu: int, system: Path) -> int:
    """How fast a CPU is beside others of this machine, as ARM says it, else by its highest clock; 0 where
    neither is known.
    """
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        with contextlib.suppress(OSError, ValueError):
            return int((system / f"cpu{cpu}" / name).read_text())
    return 0


def program(name: str) -> str:
    """How to call a program of this installation: by name if the shell finds it, else by path."""
    beside, found = Path(sys.executable).parent / name, shutil.which(name)
    if not beside.exists() or (found is not None and Path(found).absolute() == beside):
        return name
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))
