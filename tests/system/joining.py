"""A machine that joins a run by the line that its launcher prints, as far as one machine shows it."""

import os
import re
import subprocess
import sys

import psutil

JOIN = (sys.executable, "-m", "spreeze_zmq.commands.spreeze", "join")


def address_of(run):
    """Where the run's launcher says that machines join."""
    found = run.until(
        lambda: re.search(r"spreeze join (tcp://[0-9.:]+) <", run.output.read_text()),
        "the line for other machines",
        120,
    )
    return found[1]


class Machine:
    """One that joins, with nothing but the line and the key.

    Args:
        run: that it joins.
        folder: its own, which is made.
        more: further arguments of ``spreeze join``.
        key: another key than the run's.
        variables: of its environment.
    """

    def __init__(self, run, folder, *more, key=None, **variables):
        folder.mkdir()
        self.output, address = folder / "join.out", address_of(run)
        with (key or run.folder / "join.key").open() as given, self.output.open("w") as output:
            self.half = subprocess.Popen(
                [*JOIN, address, *more],
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **variables},
            )

    def said(self):
        """Its lines."""
        return self.output.read_text()

    def processes(self):
        """All of its processes."""
        return psutil.Process(self.half.pid).children(recursive=True)
