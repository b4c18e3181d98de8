"""From a topology file to a plan: reading, validating, filling in every default, naming every mistake."""

from spreeze_zmq.plan.plan import ChannelPlan, ComponentPlan, Count, Plan, RunPlan
from spreeze_zmq.plan.roles import CHANNELS, ROLES
from spreeze_zmq.topology.graph import graph
from spreeze_zmq.topology.load import load

__all__ = ["CHANNELS", "ROLES", "ChannelPlan", "ComponentPlan", "Count", "Plan", "RunPlan", "graph", "load"]
