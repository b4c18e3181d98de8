"""The balance of production and consumption: pure arithmetic, no clock and no socket."""

from spreeze_zmq.balance.gates import DelayGate, LagHistogram, RatioGate
from spreeze_zmq.balance.schedule import Schedule, updates_per_round

__all__ = ["DelayGate", "LagHistogram", "RatioGate", "Schedule", "updates_per_round"]
