"""Reads a learner's algorithm, device and publication cadence from the plan."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from spreeze_zmq import algorithms
from spreeze_zmq.algorithms import Algorithm
from spreeze_zmq.autoscale import sizing
from spreeze_zmq.component.component import Component
from spreeze_zmq.learner.publication import Cadence
from spreeze_zmq.plan.plan import Plan

log = logging.getLogger("spreeze")


def algorithm_of(plan: Plan) -> tuple[type[Algorithm], Any]:
    """The run's algorithm and its options as the algorithm's own frozen dataclass."""
    algorithm = algorithms.get(plan.run.algorithm)
    values = {name: value for name, value in plan.algorithm.items() if name != "name"}
    return algorithm, algorithms.options_from(algorithm.Options, values)


def prepare_device(component: Component) -> str:
    """Set torch up with the device and threads that the plan gives this learner; returns the device."""
    threads = component.plan.components[component.role].threads
    torch.set_num_threads(threads)
    # Moments of weights whose gradient stays 0 decay into denormals, which make Adam eight times slower.
    torch.set_flush_denormal(True)
    device: str = component.options["device"]
    log.info("device %s, %d threads", device, threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    for line in sizing.lines(component.plan.measured):
        log.info("%s", line)
    return device


def cadence_of(component: Component) -> Cadence:
    """The cadence by which the plan has this learner publish."""
    own, every = component.options, component.plan.balance.publish_every_updates
    # This thread computes updates on a CPU and waits for those on a GPU.
    work_clock = time.thread_time if own["device"] == "cpu" else time.monotonic
    return Cadence(own["publish_interval_s"], every, own["publish_cost"], work_clock=work_clock)
