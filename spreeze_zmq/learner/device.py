"""What a learner sets up before it computes: its device, and torch on it."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from spreeze_zmq.broker.requests import NOTE
from spreeze_zmq.component import Component
from spreeze_zmq.nn.device import claim
from spreeze_zmq.plan import sizing
from spreeze_zmq.plan.devices import unused_gpus

log = logging.getLogger("spreeze")


def prepare_device(component: Component) -> str:
    """Set torch up with the device, which is returned, and threads of the plan. Raises InputError."""
    threads = component.plan.components[component.role].threads
    torch.set_num_threads(threads)
    # Moments of weights whose gradient stays 0 decay into denormals, which make Adam eight times slower.
    torch.set_flush_denormal(True)
    device: str = component.options["device"]
    log.info("device %s, %d threads", device, threads)
    if device.startswith("cuda") and component.plan.balance.in_order:
        repeat_sums()
    key, plan = f"{component.role}.device", component.plan
    claim(device, f"components.{key}")
    # The launcher says it of the machine where the run is started.
    left_open = plan.left_to_node + plan.groups.left_open * (plan.groups.number > 0)
    if device == "cpu" and key in left_open and (why := unused_gpus()):
        remark(component, f'components.{key} = "auto": the CPU is taken: {why}')
    for line in sizing.lines(component.plan.measured):
        log.info("%s", line)
    return device


def remark(component: Component, line: str) -> None:
    """Log what is odd about this learner, and have the run say it: nothing has failed."""
    log.warning("%s", line)
    component.report("request", {"who": component.name, "what": NOTE, "text": line})


def repeat_sums() -> None:
    """Have a GPU add in the same order each time, as a run in lock-step has to. Of an operation that has no
    such kernel torch says so in a warning. To be called before anything is computed there.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory: Any = torch.utils.deterministic
    memory.fill_uninitialized_memory = False  # nobody reads a number that was not written
