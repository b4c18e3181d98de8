"""The display of a live run: redrawn in a terminal, plain greppable lines everywhere else."""

from spreeze_zmq.plan.status import Status
from spreeze_zmq.status.drawing import Scene, frame
from spreeze_zmq.status.ending import next_commands, outcome, say_last
from spreeze_zmq.status.plain import plain_line
from spreeze_zmq.status.progress import remaining_s
from spreeze_zmq.status.stages import RUNNING, stage_of
from spreeze_zmq.status.view import PLAIN_INTERVAL_S, StatusView, View
from spreeze_zmq.status.words import mistakes, program

__all__ = [
    "PLAIN_INTERVAL_S",
    "RUNNING",
    "Scene",
    "Status",
    "StatusView",
    "View",
    "frame",
    "mistakes",
    "next_commands",
    "outcome",
    "plain_line",
    "program",
    "remaining_s",
    "say_last",
    "stage_of",
]
