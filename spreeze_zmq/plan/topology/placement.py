"""``[placement]`` and ``[groups]``: what runs on machines that join, and how many groups there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spreeze_zmq.base.schema import show
from spreeze_zmq.plan.parts import GroupsPlan
from spreeze_zmq.plan.roles import FUSER, HEAD, MEMBER, NODE, ROLES, roles_of, why_absent
from spreeze_zmq.plan.topology.reference import GROUPS, PLACEMENT, key_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table

#: A host name, in which * and ? stand for any characters and any one.
_HOST = re.compile(r"[\w.*?-]{1,80}")
_GROUPS = ("groups", "count")


def read_placement(
    table: Any, learners: Sequence[str], mistakes: Mistakes, *, grouped: bool = False
) -> dict[str, str]:
    """The roles that run elsewhere, and where; notes those that cannot, and those that the run lacks.

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
    elsewhere = {name: value for name, value in placed.items() if value != HEAD}
    roles = roles_of(learners, grouped=grouped)
    for name in elsewhere:
        if name not in roles:
            mistakes.add(("placement", name), *why_absent(name, grouped=grouped))
    return {name: value for name, value in elsewhere.items() if name in roles}


def read_groups(table: Any, mistakes: Mistakes) -> GroupsPlan:
    """``[groups]`` as written: sets of samplers and learners that train apart and fuse their models."""
    return GroupsPlan(**read_table(GROUPS, table, ("groups",), mistakes, key_hint))


def cores_of_each(groups: GroupsPlan, placement: Collection[str], cores: int, mistakes: Mistakes) -> int:
    """The cores of each group that runs on this machine; notes more groups than it has cores.

    Args:
        groups: as read.
        placement: the roles that run elsewhere.
        cores: of this machine.
        mistakes: takes the mistake.
    """
    here = 1 if MEMBER in placement else groups.count
    if here > cores:
        problem = f"{here} groups need a core each, and this machine has {cores}"
        mistakes.add(
            _GROUPS, problem, f'lower it, or write placement.{MEMBER} = "node" for machines that join'
        )
    return max(1, cores // here)


def check_fused(groups: GroupsPlan, without: Collection[str], *, in_order: bool, mistakes: Mistakes) -> None:
    """Note what does not go with several groups."""
    if groups.count > 1 and in_order:
        problem = "groups do not wait for each other, and a run in order repeats itself"
        mistakes.add(_GROUPS, problem, "take another balance.mode, or write groups.count = 1")
    if groups.count > 1 and FUSER in without:
        mistakes.add_at(f"--without {FUSER}", "without it the groups have nothing in common", "leave it out")
