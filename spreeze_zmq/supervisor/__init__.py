"""Starts, restarts and stops the processes of a run and leaves none behind; independent of topologies."""

from spreeze_zmq.supervisor.events import Event, Exited, GaveUp, Printed, Restarted, Unwanted
from spreeze_zmq.supervisor.forking import ForkServer, ForkSpawner
from spreeze_zmq.supervisor.logs import LogWatch
from spreeze_zmq.supervisor.process import GroupSpawner, Process, ProcessSpec, Spawner, why_not_started
from spreeze_zmq.supervisor.sentences import last_words
from spreeze_zmq.supervisor.supervision import Supervisor

__all__ = [
    "Event",
    "Exited",
    "ForkServer",
    "ForkSpawner",
    "GaveUp",
    "GroupSpawner",
    "LogWatch",
    "Printed",
    "Process",
    "ProcessSpec",
    "Restarted",
    "Spawner",
    "Supervisor",
    "Unwanted",
    "last_words",
    "why_not_started",
]
