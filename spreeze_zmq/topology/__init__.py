"""From a topology file to a plan: reading, validating, filling in every default, naming every mistake."""

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.hints import setting
from spreeze_zmq.topology.load import load, make_importable
from spreeze_zmq.topology.reference import algorithm_table, entries, reference
from spreeze_zmq.topology.source import Shipped, shipped

__all__ = [
    "Plan",
    "Shipped",
    "algorithm_table",
    "entries",
    "graph",
    "load",
    "make_importable",
    "reference",
    "setting",
    "shipped",
]
