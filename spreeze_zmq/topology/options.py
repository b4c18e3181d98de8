"""The keys of a topology's tables, from the parts of the plan that they fill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spreeze_zmq.plan.parts import BalancePlan, ChannelPlan, ComponentPlan, RunPlan, StopPlan
from spreeze_zmq.plan.roles import CRITIC_LEARNER, EVALUATOR, VISUALIZER
from spreeze_zmq.schema import Option, option, options_of

#: The tables of a topology.
TABLES = ("run", "algorithm", "balance", "components", "channels")


@dataclass(frozen=True)
class DescribedEnvironment:
    """The keys of ``[run]`` for an environment that no Python program makes."""

    obs_shape: tuple[int, ...] | None = option(
        None, "describes an environment that no Python program makes", minimum=1
    )
    obs_dtype: str | None = option(None, "with obs_shape; float32 by default", choices=("float32", "uint8"))
    action_low: tuple[float, ...] | None = option(
        None, "with obs_shape: the lower bounds of a box of actions"
    )
    action_high: tuple[float, ...] | None = option(None, "with obs_shape: the upper bounds")
    action_sizes: tuple[int, ...] | None = option(
        None, "with obs_shape: the choices of each discrete action", minimum=2
    )
    max_episode_steps: int | None = option(None, "with obs_shape: its time limit; none by default", minimum=1)


@dataclass(frozen=True)
class RunTable(DescribedEnvironment, RunPlan):
    """``[run]``."""

    name: str | None = option(
        None, "what the run's folder is named after; the topology file's name by default"
    )


STOP = options_of(StopPlan)
DESCRIBED = options_of(DescribedEnvironment)
RUN = options_of(RunTable)
BALANCE = options_of(BalancePlan)
CHANNEL = options_of(ChannelPlan)

#: Defaults that a role has of its own. The evaluator plays the last policy once the run ends.
_OF_ROLE: dict[str, dict[str, Any]] = {
    CRITIC_LEARNER: {"count": 1},
    EVALUATOR: {"nice": 5, "stop_grace_s": 15.0},
    VISUALIZER: {"nice": 10},
}


def component_options(role: str) -> tuple[Option, ...]:
    """The options that every component of this role has, independent of its program."""
    own = {"use": role, **_OF_ROLE.get(role, {})}
    return tuple(
        replace(each, default=own.get(each.name, each.default)) for each in options_of(ComponentPlan)
    )
