"""Reinforcement learning on one desktop: independent processes that pass messages over ZeroMQ.

>>> import spreeze_zmq
>>> run = spreeze_zmq.train("Pendulum-v1", stop={"return": -200})
>>> action = run.policy(obs)
>>> policy = spreeze_zmq.Policy.load("runs/Pendulum-v1-20260101-120000")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spreeze_zmq.callbacks import Callback as Callback
    from spreeze_zmq.launcher.training.entry import Run as Run
    from spreeze_zmq.launcher.training.entry import train as train
    from spreeze_zmq.policy import Policy as Policy

__version__ = "0.1.0"
__all__ = ["Callback", "Policy", "Run", "__version__", "train"]


def __dir__() -> list[str]:
    """The names of the package, with those that are imported at first use."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """``Run``, ``train``, ``Callback`` and ``Policy`` are imported at first use: importing the package is
    cheap.
    """
    if name in ("Run", "train"):
        from spreeze_zmq.launcher import training

        return getattr(training, name)
    if name == "Callback":
        from spreeze_zmq.callbacks import Callback

        return Callback
    if name != "Policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spreeze_zmq.algorithms.class_policy import let_trusted_act
    from spreeze_zmq.policy import Policy

    let_trusted_act()
    return Policy
