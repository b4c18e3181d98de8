"""Callbacks: a user's own Python that hears what a run says, and may ask it for something.

They run beside the run, never in it: in the script that called ``train(callbacks=[...])``, or in a process of
their own (``[components.observer]``, ``spreeze-launch --callback MODULE:CLASS``). What they hear comes from
the broker's feed, what they ask for goes to the broker. Training waits for none of them.
"""

from spreeze_zmq.callbacks.callback import Callback, LiveRun
from spreeze_zmq.callbacks.events import (
    Best,
    Checkpoint,
    Ended,
    Episodes,
    Evaluation,
    Failure,
    Started,
    Status,
)
from spreeze_zmq.callbacks.loggers import Logger, MLflow, Trackio, WandB

__all__ = [
    "Best",
    "Callback",
    "Checkpoint",
    "Ended",
    "Episodes",
    "Evaluation",
    "Failure",
    "LiveRun",
    "Logger",
    "MLflow",
    "Started",
    "Status",
    "Trackio",
    "WandB",
]
