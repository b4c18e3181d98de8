"""The GPUs that a process may use are counted without torch, by what NVIDIA's library of management says."""

import logging
import subprocess

import pytest

from spreeze_zmq.base import gpus
from spreeze_zmq.plan import devices

NVML = """
#include <cstdio>
extern "C" {
int nvmlInit_v2() { return FAULT == 4 ? 0 : FAULT; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, long *device) {
  *device = 40 + index;
  return FAULT == 4 && index != 1 ? 4 : 0;  // NVML_ERROR_NO_PERMISSION
}
int nvmlDeviceGetName(long device, char *name, unsigned size) {
  return std::snprintf(name, size, "GeForce %ld", device) < 0;
}
}
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Gives this machine that library, or none for None, and GPUs in /proc and /dev; returns what counts."""

    def give(fault, driven=(), nodes=()):
        library = tmp_path / "libnvidia-ml.so.1"
        if fault is not None:
            build = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library), f"-DFAULT={fault}"]
            subprocess.run(build, input=NVML, text=True, check=True)
        (tmp_path / "dev").mkdir()
        for name in nodes:
            (tmp_path / "dev" / name).touch()
        for name in driven:
            (tmp_path / "driver" / name).mkdir(parents=True)
        for name, path in (("DRIVER", "driver"), ("NODES", "dev"), ("WSL_DEVICE", "dev/dxg")):
            monkeypatch.setattr(gpus, name, tmp_path / path)
        for name, path in (("WSL_LIBRARY", library), ("NVML", str(library)), ("CUDA", str(library))):
            monkeypatch.setattr(gpus, name, path)
        monkeypatch.setattr(gpus, "wsl_gpus", gpus.wsl_gpus.__wrapped__)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return devices.num_cuda_devices.__wrapped__

    return give


@pytest.mark.parametrize(("fault", "found"), [(0, ["GeForce 40", "GeForce 41"]), (9, []), (None, [])])
def test_the_gpus_of_wsl_are_counted_though_nothing_in_proc_lists_them(machine, fault, found):
    """By the library; one that fails, or is not there beside the device, has none."""
    count = machine(fault)
    assert (gpus.wsl_gpus(), count()) == ([], 0)
    gpus.WSL_DEVICE.touch()
    assert (gpus.wsl_gpus(), count()) == (found, len(found))


@pytest.mark.parametrize(
    ("fault", "driven", "nodes", "usable"),
    [
        (0, ("a", "b"), ("nvidia0", "nvidia1", "nvidiactl"), 2),
        (0, ("a", "b"), (), 2),  # their nodes are made at the first use
        (0, ("a", "b"), ("nvidia1",), 1),
        (9, ("a", "b"), ("nvidia0", "nvidia1"), 0),
        (4, ("a", "b"), ("nvidia0", "nvidia1"), 1),  # a job that was given one of them
        (None, ("a",), (), 0),  # a container without GPUs
        (None, (), ("nvidia0",), 0),
    ],
)
def test_gpus_that_this_process_may_not_use_are_not_taken(machine, caplog, fault, driven, nodes, usable):
    """Those of the machine are in /proc or /dev all the same; "auto" takes the CPU then, and says why."""
    count = machine(fault, driven, nodes)
    with caplog.at_level(logging.WARNING, "spreeze"):
        assert count() == usable
    assert ("that this process may not use" in caplog.text) == (usable == 0)
