"""Reinforcement learning on one desktop: independent processes that pass messages over ZeroMQ."""

__version__ = "0.1.0"
