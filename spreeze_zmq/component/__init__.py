"""What every component is built on: join the run, connect, poll, report, stop."""

from spreeze_zmq.component.component import Component
from spreeze_zmq.component.life import run
from spreeze_zmq.component.weights import Weights

__all__ = ["Component", "Weights", "run"]
