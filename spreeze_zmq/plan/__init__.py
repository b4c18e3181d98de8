"""What a run is: roles and channels, the resolved plan, typed options, and the fields of its status."""

from spreeze_zmq.plan.plan import BalancePlan, ChannelPlan, ComponentPlan, Count, Plan, RunPlan, StopPlan
from spreeze_zmq.plan.roles import CHANNELS, ROLES

__all__ = [
    "CHANNELS",
    "ROLES",
    "BalancePlan",
    "ChannelPlan",
    "ComponentPlan",
    "Count",
    "Plan",
    "RunPlan",
    "StopPlan",
]
