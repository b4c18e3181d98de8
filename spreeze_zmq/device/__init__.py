"""Recorded updates, on a GPU as CUDA graphs, and asynchronous transfers that keep a GPU busy."""

from __future__ import annotations

from spreeze_zmq.device.captured import WARM_UP_CALLS, Captured, Recorder, captured
from spreeze_zmq.device.transfers import Download, Ingestion, Staging
from spreeze_zmq.device.work import Work

__all__ = ["WARM_UP_CALLS", "Captured", "Download", "Ingestion", "Recorder", "Staging", "Work", "captured"]
