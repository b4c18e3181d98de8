"""From a topology file to a plan: reading, validating, filling in every default, naming every mistake."""

from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.load import load
from spreeze_zmq.topology.plan import ChannelPlan, ComponentPlan, Count, Plan, RunPlan
from spreeze_zmq.topology.table import CHANNELS, ROLES

__all__ = ["CHANNELS", "ROLES", "ChannelPlan", "ComponentPlan", "Count", "Plan", "RunPlan", "graph", "load"]
