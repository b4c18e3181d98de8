"""The display of a live run: redrawn in a terminal, plain greppable lines elsewhere."""

from spreeze_zmq.screen.terminal.ending import next_commands, outcome, say_last
from spreeze_zmq.screen.terminal.stages import stage_of
from spreeze_zmq.screen.terminal.view import StatusView, View
from spreeze_zmq.screen.terminal.words import (
    clock,
    counted,
    ended_by,
    failure_rows,
    finding_line,
    findings,
    mistakes,
    plain_line,
    program,
)

__all__ = [
    "StatusView",
    "View",
    "clock",
    "counted",
    "ended_by",
    "failure_rows",
    "finding_line",
    "findings",
    "mistakes",
    "next_commands",
    "outcome",
    "plain_line",
    "program",
    "say_last",
    "stage_of",
]
