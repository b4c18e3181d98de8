"""Starts, supervises and ends the processes of one run."""

from spreeze_zmq.launcher.launcher import Launch

__all__ = ["Launch"]
