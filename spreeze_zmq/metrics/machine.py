"""The machine of a run: load of its cores, load and memory of its GPUs, its physical cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil


def busy_cpu_s() -> float:
    """CPU seconds used so far, by all processes, on the cores that this process may run on."""
    times = psutil.cpu_times(percpu=True)
    cpus = [times[cpu] for cpu in os.sched_getaffinity(0) if cpu < len(times)]
    # The kernel includes guest time in user time.
    return sum(sum(cpu) - cpu.idle - cpu.iowait - cpu.guest - cpu.guest_nice for cpu in cpus)


class Gpus:
    """The NVIDIA GPUs of the machine; none without the package ``nvidia-ml-py`` and a driver."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # a run does without these figures, whatever a driver raises
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
            ]

    def figures(self) -> list[dict[str, float]]:
        """For each GPU: ``busy`` (share of the last second) and ``memory_bytes``."""
        found = []
        for handle in self._handles:
            try:
                busy = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle).used
            except self._nvml.NVMLError:
                continue
            found.append({"busy": busy, "memory_bytes": memory})
        return found


def physical_cores(cpus: Collection[int], system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """The given CPUs grouped by physical core; one core per CPU where ``system`` has no topology."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        try:
            siblings = (
                (system / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii").strip()
            )
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    return list(cores.values())
