"""The quota of CPU time and the memory that a container gives its processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def quota_cores(process: Path = Path("/proc/self")) -> float | None:
    """The smallest quota of CPU time of this process's control groups, in cores; None without one.

    Groups are nested, and each may have a quota: ``cpu.max`` in version 2, ``cpu.cfs_quota_us`` in version 1.
    """
    return limit[0] if (limit := _limit(process)) is not None else None


def quota_used_s(below: int, process: Path = Path("/proc/self")) -> float | None:
    """CPU seconds that all processes of the control group with that quota have used; None without a quota of
    fewer cores than ``below``, or where the kernel does not say.
    """
    limit = _limit(process)
    if limit is None or limit[0] >= below:
        return None
    with contextlib.suppress(OSError, ValueError):
        rows = dict(line.split() for line in (limit[1] / "cpu.stat").read_text().splitlines())
        if (used := rows.get("usage_usec")) is not None:
            return int(used) / 1e6
        return int((limit[1] / "cpuacct.usage").read_text()) / 1e9
    return None


def memory_left(process: Path = Path("/proc/self")) -> int | None:
    """Bytes that this process's control groups still let it take, the least of all: up to the limit, with the
    files' pages that the kernel gives up for it; None without a limit. Beyond version 2's "high" processes go
    on, but wait for the kernel to make room.
    """
    with contextlib.suppress(OSError, ValueError):
        left = map(_memory_left_of, _groups(process, "memory"))
        return min((each for each in left if each is not None), default=None)
    return None


def _limit(process: Path) -> tuple[float, Path] | None:
    """The smallest quota, and its group; None without one."""
    with contextlib.suppress(OSError, ValueError):
        groups = _groups(process, "cpu")
        found = [(quota, folder) for folder in groups if (quota := _quota_of(folder)) is not None]
        return min(found, default=None)
    return None


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """The folder of each control group that the process is in, and those of the groups around it.

    Args:
        process: its folder in /proc.
        controller: whose groups are meant in version 1; in version 2 they are the same for all.
    """
    lines = [line.split(":", 2) for line in _lines(process / "cgroup")]
    group_of = {name: path for _, names, path in lines for name in names.split(",")}
    for line in _lines(process / "mountinfo"):
        mount, _, about = line.partition(" - ")
        kind, _, rest = about.partition(" ")
        options = rest.rpartition(" ")[2]  # behind the source, which may be empty
        name = {"cgroup": controller, "cgroup2": ""}.get(kind)
        if name not in group_of or (name and name not in options.split(",")):
            continue
        root, folder = (_plain(each) for each in mount.split(" ")[3:5])
        within = Path(group_of[name])
        inner = within.relative_to(root) if within.is_relative_to(root) else Path()
        yield Path(folder)  # a container without namespaces sees its own group at the mount
        for depth in range(len(inner.parts)):
            yield Path(folder, *inner.parts[: depth + 1])


def _lines(path: Path) -> list[str]:
    """The lines of a file of /proc that names what others have named: in any bytes, and in characters that
    Python, too, takes for the end of a line.
    """
    return [line for line in os.fsdecode(path.read_bytes()).split("\n") if line]


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


def _memory_left_of(group: Path) -> int | None:
    """The bytes that are left in one group; None if it has no limit."""
    with contextlib.suppress(OSError, ValueError):
        files = [file for name in ("max", "high") if (file := group / f"memory.{name}").exists()]
        if files:
            used, cached = "memory.current", ("inactive_file", "active_file")
        else:
            files, used = [group / "memory.limit_in_bytes"], "memory.usage_in_bytes"
            cached = ("total_inactive_file", "total_active_file")
        limits = [int(text) for file in files if (text := file.read_text().strip()) != "max"]
        if not limits:
            return None
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        pages = sum(int(stat.get(name, 0)) for name in cached)
        return max(0, min(limits) - int((group / used).read_text()) + pages)
    return None
