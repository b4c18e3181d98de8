"""Reinforcement learning on one desktop: independent processes that pass messages over ZeroMQ.

>>> import spreeze_zmq
>>> policy = spreeze_zmq.Policy.load("runs/pendulum-20260101-120000")
>>> action = policy(obs)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.policy import Policy as Policy

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What users import from here, made at its first use: importing the package alone costs nothing."""
    if name != "Policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spreeze_zmq.algorithms.class_policy import loader_of_modules
    from spreeze_zmq.policy import Policy, register_class_loader
    from spreeze_zmq.policy.classes import trusted

    register_class_loader(loader_of_modules(trusted))
    return Policy
