"""From a topology file to a plan: reading, validating, filling in every default, naming every mistake."""

from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.load import load, make_importable

__all__ = ["Plan", "graph", "load", "make_importable"]
