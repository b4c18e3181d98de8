"""``spreeze doctor RUN``: what keeps a run from learning, and the one thing to try for each cause.

Exit code 0 if nothing is found, 1 if something is. It reads run.json and metrics.jsonl, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spreeze_zmq.base.charset import say
from spreeze_zmq.base.journal import read_journal
from spreeze_zmq.broker.doctor import findings_of
from spreeze_zmq.commands.arguments import add_json_list
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import read_run
from spreeze_zmq.screen.terminal.words import finding_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's folder; it may still be live")
    add_json_list(parser)


def main(arguments: argparse.Namespace) -> int:
    """Print the findings of a run; returns 1 if there are any."""
    past = read_run(Path(arguments.run))
    rows = findings_of(past.plan, read_journal(RunFolder(past.folder).metrics))
    if arguments.json:
        say(json.dumps(rows, indent=1))
    elif not rows:
        say(f"{arguments.run}: nothing found")
    for row in () if arguments.json else rows:
        say(f"{row['name']}: {finding_line(row)}")
    return 1 if rows else 0
