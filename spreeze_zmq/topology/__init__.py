"""From a topology file to a plan: reads, validates, fills in every default and reports every mistake."""

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.load import load
from spreeze_zmq.topology.reference import algorithm_table, entries, reference, setting
from spreeze_zmq.topology.source import shipped

__all__ = [
    "Plan",
    "algorithm_table",
    "entries",
    "graph",
    "load",
    "reference",
    "setting",
    "shipped",
]
