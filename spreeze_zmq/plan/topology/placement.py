"""``[placement]``: which roles run on machines that join."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from spreeze_zmq.base.schema import show
from spreeze_zmq.plan.roles import HEAD, NODE, ROLES, roles_of
from spreeze_zmq.plan.topology.reference import PLACEMENT, key_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table

#: A host name, in which * and ? stand for any characters and any one.
_HOST = re.compile(r"[\w.*?-]{1,80}")


def read_placement(
    table: Any, learners: Sequence[str], mistakes: Mistakes, *, grouped: bool = False
) -> dict[str, str]:
    """The roles that run elsewhere, and where; notes those that cannot.

    Args:
        table: ``[placement]`` as written.
        learners: the roles that train.
        mistakes: takes the mistakes.
        grouped: the run has several groups.
    """
    if isinstance(table, Mapping):
        staying = {name: value for name, value in table.items() if name in ROLES and ROLES[name].stays}
        for name, value in staying.items():
            if value != HEAD or not ROLES[name].single:
                mistakes.add(("placement", name), "it has no other place", ROLES[name].stays)
        table = {name: value for name, value in table.items() if name not in staying}
    placed = read_table(PLACEMENT, table, ("placement",), mistakes, key_hint)
    for name, value in placed.items():
        if not _HOST.fullmatch(value):
            problem = f"expected {show(HEAD)}, {show(NODE)} or a host name, got {show(value)}"
            mistakes.add(("placement", name), problem, 'as in "desk2" or "desk*"')
    roles = roles_of(learners, grouped=grouped)
    return {name: value for name, value in placed.items() if value != HEAD and name in roles}
