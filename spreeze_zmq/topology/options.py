"""The keys of a topology's tables, from the parts of the plan that they fill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spreeze_zmq.plan.parts import BalancePlan, ChannelPlan, ComponentPlan, RunPlan, StopPlan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, VISUALIZER
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

#: Defaults of single roles. The evaluator plays the last policy after the run ends.
_OF_ROLE: dict[str, dict[str, Any]] = {
    CRITIC_LEARNER: {"count": 1},
    EVALUATOR: {"nice": 5, "stop_grace_s": 15.0},
    VISUALIZER: {"nice": 10},
}


def component_options(role: str) -> tuple[Option, ...]:
    """The options that every component of this role has, whatever its program."""
    own = {"use": role, **_OF_ROLE.get(role, {})}
    return tuple(
        replace(each, default=own.get(each.name, each.default)) for each in options_of(ComponentPlan)
    )
