"""Recorded updates, as tapes on a CPU and CUDA graphs on a GPU, and asynchronous copies to and from a GPU."""

from __future__ import annotations

from spreeze_zmq.nn.device.captured import WARM_UP_CALLS, Captured, captured
from spreeze_zmq.nn.device.claim import claim
from spreeze_zmq.nn.device.generators import default_generator, draw_on
from spreeze_zmq.nn.device.guards import set_parts
from spreeze_zmq.nn.device.transfers import Download, Ingestion, Staging, Work

__all__ = [
    "WARM_UP_CALLS",
    "Captured",
    "Download",
    "Ingestion",
    "Staging",
    "Work",
    "captured",
    "claim",
    "default_generator",
    "draw_on",
    "set_parts",
]
