"""The machine under a run: how busy its cores are, and its GPUs where there are some."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil


def busy_cpu_s() -> float:
    """CPU seconds that everybody has used so far on the cores that this process may run on."""
    times = psutil.cpu_times(percpu=True)
    cpus = [times[cpu] for cpu in os.sched_getaffinity(0) if cpu < len(times)]
    # The kernel counts a guest's time as its host's user time too.
    return sum(sum(cpu) - cpu.idle - cpu.iowait - cpu.guest - cpu.guest_nice for cpu in cpus)


class Gpus:
    """NVIDIA GPUs as their driver tells; none where the package ``nvidia-ml-py`` or a driver is missing."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handles = [
                pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
            ]
        except Exception:  # whatever a driver of another version raises, a run does without these figures
            self._handles = []

    def figures(self) -> list[dict[str, float]]:
        """Of each GPU: ``busy`` (share of the last second) and ``memory_bytes``."""
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
    """The hyperthreads of each core, of those CPUs that are given; each CPU its own core where Linux does not
    tell.
    """
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
