"""From a topology file to a plan: reading, validating, filling in every default, naming every mistake."""

from spreeze_zmq.plan.plan import Count, Plan
from spreeze_zmq.plan.roles import CHANNELS, ROLES
from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.load import load, make_importable

__all__ = ["CHANNELS", "ROLES", "Count", "Plan", "graph", "load", "make_importable"]
