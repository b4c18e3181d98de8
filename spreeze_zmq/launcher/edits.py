"""Whether a process that begins while a run trains imports what the others did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spreeze_zmq.base.own_code import changed_files, code_of
from spreeze_zmq.base.trust import module_of
from spreeze_zmq.envs.goals import is_goal_dict
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import EVALUATOR, LEARNERS, SAMPLER

#: Who steps environments.
PLAYERS = (SAMPLER, EVALUATOR)


class Edits:
    """Says once which files of the user's were edited before a process of this machine began.

    Args:
        plan: of the run.
        note: shows the user a line.
    """

    def __init__(self, plan: Plan, note: Callable[[str], None]) -> None:
        self._plan, self._note = plan, note
        self._pids: dict[str, int] | None = None
        self._here = dict[str, dict[str, str]]()  # by table, while it is looked
        self._said = set[str]()

    def look(self, pids: Mapping[str, int]) -> None:
        """Look at the files where a process has begun that was not there at the last call; the first call is
        of those that began with the run, but in another group's launcher, which may begin again during it.

        Args:
            pids: of the processes here, by name.
        """
        before, self._pids = self._pids, dict(pids)
        if before is None and not self._plan.groups.number:
            return
        self._here = {}
        for name, pid in pids.items():
            if (before or {}).get(name) == pid:
                continue
            if (files := self._edited(name.rpartition("-")[0])) - self._said:
                self._said |= files
                self._note(
                    f"edited since the run began: {', '.join(sorted(files))}; {name} has what is there now"
                )

    def _edited(self, role: str) -> set[str]:
        """The files that a process of a role imports, and that are others now."""
        run, judges = self._plan.run, is_goal_dict(self._plan.environment.obs_parts)
        judges &= self._plan.learning.rows_each > 1  # a learner that relabels has its compute_reward
        imports = dict[str, tuple[str, Any]]()
        if role in (*PLAYERS, *LEARNERS):
            imports["algorithm"] = module_of(run.algorithm), None
        if role in PLAYERS or (role in LEARNERS and judges):
            imports["environment"] = module_of(run.env), run.env_kwargs
        found = set[str]()
        for table, known in ((table, self._plan.own_code.get(table)) for table in imports):
            if known:
                if table not in self._here:
                    self._here[table] = code_of(*imports[table])
                found.update(changed_files(known, self._here[table]))
        return found
