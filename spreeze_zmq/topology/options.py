"""The keys of a topology's tables, from the parts of the plan that they fill."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spreeze_zmq.plan.parts import BalancePlan, ChannelPlan, ComponentPlan, RunPlan, StopPlan
from spreeze_zmq.plan.roles import ROLES
from spreeze_zmq.schema import Option, option, options_of
from spreeze_zmq.topology.described import DescribedEnvironment

#: The tables of a topology.
TABLES = ("run", "algorithm", "balance", "components", "channels")


@dataclass(frozen=True)
class RunTable(DescribedEnvironment, RunPlan):
    """``[run]``."""

    name: str | None = option(None, "prefix of the run folder's name; by default the topology file's name")


STOP = options_of(StopPlan)
RUN = options_of(RunTable)
BALANCE = options_of(BalancePlan)
CHANNEL = options_of(ChannelPlan)
START_TIMEOUT = next(each for each in options_of(ComponentPlan) if each.name == "start_timeout_s")


def component_options(role: str) -> tuple[Option, ...]:
    """The options that every component of this role has, whatever its program."""
    own = {"use": role, **ROLES[role].defaults}
    return tuple(
        replace(each, default=own.get(each.name, each.default)) for each in options_of(ComponentPlan)
    )
