"""The NVIDIA GPUs of this machine, found without importing torch."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

log = logging.getLogger("spreeze")

#: Where NVIDIA's driver lists its devices, and the folder of their nodes.
DRIVER, NODES = Path("/proc/driver/nvidia/gpus"), Path("/dev")
#: What WSL2 has instead: one device for the GPUs of Windows, and NVIDIA's libraries of its driver.
WSL_DEVICE, WSL_LIBRARY = Path("/dev/dxg"), Path("/usr/lib/wsl/lib/libnvidia-ml.so.1")
#: The driver's libraries for management and for CUDA.
NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
#: What chooses among the GPUs of a machine: of CUDA, and of the container.
CHOOSING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


@cache
def gpu_models() -> list[str]:
    """The models of all GPUs of the machine."""
    texts = [path.read_text(errors="replace") for path in sorted(DRIVER.glob("*/information"))]
    found = [re.search(r"^Model:\s*(.*?)\s*$", text, re.MULTILINE) for text in texts]
    return [match[1] for match in found if match] or wsl_gpus()


@cache
def wsl_gpus() -> list[str]:
    """The models of the GPUs in WSL2; none elsewhere."""
    return (of_nvml(str(WSL_LIBRARY)) or []) if WSL_DEVICE.exists() else []


def chosen_gpus() -> dict[str, str]:
    """The variables of the environment that say which of them this process has, and in which order, as far as
    they are set.
    """
    return {name: os.environ[name] for name in CHOOSING if name in os.environ}


def num_usable_gpus() -> int:
    """Number of GPUs that this process may use. A container without GPUs, and a job that was given none, see
    those of the machine in /proc or /dev.
    """
    driven = len(list(DRIVER.glob("*")))
    nodes = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in NODES.glob("nvidia*"))
    # A container may have fewer nodes than the driver has GPUs; a new machine creates them at first use.
    if not (seen := min(driven, nodes) or max(driven, nodes)):
        return len(wsl_gpus())
    models = of_nvml(NVML)
    usable = len(models) if models is not None else nodes if _loaded(CUDA) is not None else 0
    if not usable:
        log.warning(
            "the machine has %d NVIDIA GPU%s that this process may not use, or its driver fails: nvidia-smi "
            "says which; a container needs --gpus all, a job of Slurm --gres=gpu",
            seen,
            "s" * (seen > 1),
        )
    return min(seen, usable)


def are_of_one_model() -> bool:
    """Whether all GPUs that this process may use are of one model, as far as that is known. Which of several
    models a number of CUDA's stands for is known where its order is that of the bus, as NVML's is.
    """
    models = of_nvml(NVML) or gpu_models()
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and all(map(str.isdecimal, listed)):
        models = [models[int(number)] for number in listed if int(number) < len(models)]
    return len(set(models)) < 2


def of_nvml(library: str) -> list[str] | None:
    """The models of the GPUs that NVIDIA's library of management finds; None where it cannot be loaded."""
    import ctypes

    if (nvml := _loaded(library)) is None:
        return None
    models: list[str] = []
    with contextlib.suppress(AttributeError):  # another library of that name
        if nvml.nvmlInit_v2() == 0:
            count = ctypes.c_uint()
            if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
                for index in range(count.value):
                    device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
                    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                        nvml.nvmlDeviceGetName(device, name, len(name))  # those of others have no handle
                        models.append(name.value.decode(errors="replace"))
            nvml.nvmlShutdown()
    return models


def _loaded(library: str) -> Any:
    """A library; None where it cannot be loaded."""
    import ctypes  # no command waits for it on a machine without GPUs

    with contextlib.suppress(OSError):
        return ctypes.CDLL(library)
    return None
