"""A published policy as samplers and evaluators use it: NumPy alone, from a message or from a file."""

from __future__ import annotations

from spreeze_zmq.policy.policy import Policy

__all__ = ["Policy"]
