"""From a topology file to a plan: reads, validates, fills in every default and reports every mistake."""

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.topology.document import shipped
from spreeze_zmq.plan.topology.load import load
from spreeze_zmq.plan.topology.reference import algorithm_table, entries, reference, setting

__all__ = [
    "Plan",
    "algorithm_table",
    "entries",
    "load",
    "reference",
    "setting",
    "shipped",
]
