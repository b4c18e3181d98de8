"""The balance of production and consumption: pure arithmetic, no clock and no socket."""

from spreeze_zmq.balance.gates import DelayGate, LagHistogram, RatioGate

__all__ = ["DelayGate", "LagHistogram", "RatioGate"]
