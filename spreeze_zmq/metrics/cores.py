"""The cores that a process may use: those of its affinity, and no more than its container's quota."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path


def available_cores(pid: int = 0) -> int:
    """Whole cores for a process, by default this one: its affinity, or this process's quota if that is lower.

    A quota of 1.4 cores counts as 1, one of 1.6 as 2, and any lower one as 1.
    """
    cores = len(os.sched_getaffinity(pid))
    quota = quota_cores()
    return cores if quota is None else max(1, min(cores, round(quota)))


def usable_cores(cpus: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """The physical cores of ``cpus``, as many as the quota allows; see ``physical_cores``."""
    cores, quota = physical_cores(cpus, system), quota_cores()
    return cores if quota is None else cores[: max(1, round(quota))]


def quota_cores(process: Path = Path("/proc/self")) -> float | None:
    """The smallest quota of CPU time of this process's control groups, in cores; None without one.

    Groups are nested, and each may have a quota: ``cpu.max`` in version 2, ``cpu.cfs_quota_us`` in version 1.
    """
    with contextlib.suppress(OSError):
        found = [quota for folder in _groups(process) if (quota := _quota_of(folder)) is not None]
        return min(found, default=None)
    return None


def _groups(process: Path) -> Iterator[Path]:
    """The folder of each control group that the process is in, and those of the groups around it."""
    lines = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
    group_of = {name: path for _, names, path in lines for name in names.split(",")}
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        root, folder = (_plain(name) for name in mount.split()[3:5])
        kind, _, options = kind.split(maxsplit=2)
        name = {"cgroup": "cpu", "cgroup2": ""}.get(kind)
        if name not in group_of or (name and name not in options.split(",")):
            continue
        within = Path(group_of[name])
        inner = within.relative_to(root) if within.is_relative_to(root) else Path()
        yield Path(folder)  # a container without namespaces sees its own group at the mount
        for depth in range(len(inner.parts)):
            yield Path(folder, *inner.parts[: depth + 1])


def _plain(name: str) -> str:
    """A path of mountinfo, which writes blanks and the like as octal numbers."""
    return name.encode("ascii", "backslashreplace").decode("unicode_escape") if "\\" in name else name


def _quota_of(group: Path) -> float | None:
    """The quota of one group in cores; None if it has none."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        if (file := group / "cpu.max").exists():
            quota, period = file.read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else None
    return None


def physical_cores(cpus: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """Group CPUs by physical core; one core per CPU if ``system`` has no topology."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        path = system / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings = path.read_text(encoding="ascii").strip()
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    return list(cores.values())
