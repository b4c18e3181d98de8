"""``[groups]``: sets of samplers and learners that train apart and fuse their models."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from spreeze_zmq.plan.parts import GroupsPlan
from spreeze_zmq.plan.roles import FUSER, MEMBER
from spreeze_zmq.plan.topology.reference import GROUPS, key_hint
from spreeze_zmq.plan.topology.tables import Mistakes, read_table

_KEY = ("groups", "count")


def read_groups(table: Any, mistakes: Mistakes) -> GroupsPlan:
    """``[groups]`` as written."""
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
        mistakes.add(_KEY, problem, f'lower it, or write placement.{MEMBER} = "node" for machines that join')
    return max(1, cores // here)


def check_fused(groups: GroupsPlan, without: Collection[str], *, in_order: bool, mistakes: Mistakes) -> None:
    """Note what does not go with several groups."""
    if groups.count > 1 and in_order:
        problem = "groups do not wait for each other, and a run in order repeats itself"
        mistakes.add(_KEY, problem, "take another balance.mode, or write groups.count = 1")
    if groups.count > 1 and FUSER in without:
        mistakes.add_at(f"--without {FUSER}", "without it the groups have nothing in common", "leave it out")
