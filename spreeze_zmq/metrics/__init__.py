"""Measurements of a live run: rates, CPU time, GPUs, the journal, the curves of TensorBoard."""

from spreeze_zmq.metrics.family import Family
from spreeze_zmq.metrics.journal import Journal, read_journal
from spreeze_zmq.metrics.machine import Gpus, busy_cpu_s, physical_cores
from spreeze_zmq.metrics.plain import plain, write_json
from spreeze_zmq.metrics.rates import Rates
from spreeze_zmq.metrics.tensorboard import TensorBoard

__all__ = [
    "Family",
    "Gpus",
    "Journal",
    "Rates",
    "TensorBoard",
    "busy_cpu_s",
    "physical_cores",
    "plain",
    "read_journal",
    "write_json",
]
