"""Measurements of a live run: CPU time, GPUs, the journal, TensorBoard's curves."""

from spreeze_zmq.metrics.journal import Journal, plain, read_journal, write_json
from spreeze_zmq.metrics.machine import Family, Gpus, busy_cpu_s
from spreeze_zmq.metrics.tensorboard import TensorBoard

__all__ = [
    "Family",
    "Gpus",
    "Journal",
    "TensorBoard",
    "busy_cpu_s",
    "plain",
    "read_journal",
    "write_json",
]
