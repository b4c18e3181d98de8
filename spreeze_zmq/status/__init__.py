"""The display of a live run: one table in a terminal, plain greppable lines everywhere else."""

from spreeze_zmq.plan.status import Status
from spreeze_zmq.status.drawing import plain_line, remaining_s, table
from spreeze_zmq.status.view import PLAIN_INTERVAL_S, StatusView

__all__ = ["PLAIN_INTERVAL_S", "Status", "StatusView", "plain_line", "remaining_s", "table"]
