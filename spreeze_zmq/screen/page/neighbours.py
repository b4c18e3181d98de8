"""Other runs of the same environment, whose curves the page can draw beside those of its own run."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.files import plain
from spreeze_zmq.run.folder import RunFolder
from spreeze_zmq.run.history import find_runs
from spreeze_zmq.screen.page.story import journal

#: Runs that are offered: the newest ones, and those beyond that still run.
MOST_RUNS = 100
#: Time for which they are not looked for again: a page with several of them asks for each at once.
FOUND_FOR_S = 5.0
#: Entries of a run that its curves are drawn of.
DRAWN = ("point", "evaluation")


class Neighbours:
    """The runs in the folder that holds a run's folder, as they were at most ``FOUND_FOR_S`` ago.

    Args:
        folder: of the run.
        env: its environment's id.
    """

    def __init__(self, folder: Path, env: str) -> None:
        self._folder, self._env = folder.resolve(), env
        self._runs: dict[str, dict[str, Any]] = {}
        self._looked_s = -math.inf  # on the monotonic clock

    def found(self) -> dict[str, dict[str, Any]]:
        """Name of each run that is offered -> what the page shows of it, the newest first."""
        every = enumerate(self._all().items())
        return dict(row for i, row in every if i < MOST_RUNS or row[1]["state"] == "running")

    def _all(self) -> dict[str, dict[str, Any]]:
        """:meth:`found` of all runs, however many there are; to look for them reads files of each run of the
        folder.
        """
        if time.monotonic() - self._looked_s >= FOUND_FOR_S:
            self._runs = self._look()
            self._looked_s = time.monotonic()
        return self._runs

    def _look(self) -> dict[str, dict[str, Any]]:
        try:
            runs = find_runs(self._folder.parent)
        except (InputError, OSError):
            return {}
        own = [run for run in reversed(runs) if run.env == self._env]
        return {
            str(run.folder.relative_to(self._folder.parent)): {
                "algorithm": str(run.plan["run"].get("algorithm")),
                "seed": run.plan["run"].get("seed"),
                "state": run.state,
            }
            for run in own
            if run.folder.resolve() != self._folder
        }

    def named(self, given: str) -> str:
        """The name of a run that is given by its folder, by which a page gets its curves.

        Raises:
            InputError: it is no other run of the environment beside this one.
        """
        found, place = self._all(), self._folder.parent
        with contextlib.suppress(ValueError):
            if (name := str(Path(given).resolve().relative_to(place))) in found:
                return name
        offered = ", ".join([*list(found)[:3], *(["..."] if len(found) > 3 else [])]) or "none"
        raise InputError(
            f"{given}: no other run of {self._env} in {place}, so that nothing can be drawn beside "
            f"{self._folder.name}; there are: {offered} (spreeze runs {place} shows all)"
        )

    def listing(self) -> bytes:
        """:meth:`found` as JSON."""
        return json.dumps(plain(self.found())).encode()

    def entries(self, name: str) -> bytes | None:
        """The entries of a run that its curves are drawn of, as JSON; None where no other run of the
        environment beside this one is called so.
        """
        if name not in self._all():
            return None
        entries = journal(RunFolder(self._folder.parent / name))
        return json.dumps([plain(entry) for entry in entries if entry["topic"] in DRAWN]).encode()
