"""The deadlines of processes that step environments, from what one environment took before the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.envs import Timing
from spreeze_zmq.plan.processes import ComponentPlan
from spreeze_zmq.plan.roles import DEADLINES, EVALUATOR, SAMPLER
from spreeze_zmq.plan.topology.reference import START_TIMEOUT

#: Roles whose processes make environments before they are ready.
MAKE_ENVIRONMENTS = frozenset({SAMPLER, EVALUATOR})
#: From this time for one environment on, a process gets this many times as much for it.
WORTH_S, LONGER = 3.0, 3.0


def with_time_to_start(
    components: Mapping[str, ComponentPlan], written: Any, timing: Timing
) -> dict[str, ComponentPlan]:
    """The components, those that make environments with a ``start_timeout_s`` within which one can be made.
    Where its first reset or step takes long in each process, as one that compiles, the deadlines of a
    process's silence and of a worker's step allow it too.

    Each environment that is made or reset begins the deadline again. One that is written stays.
    """
    longest_s = timing.make_s + max(timing.reset_s, timing.first_call_s)
    plans = dict(components)
    for role in MAKE_ENVIRONMENTS & plans.keys():
        table = written.get(role, {})
        if longest_s > WORTH_S and START_TIMEOUT.name not in table:
            enough_s = plans[role].start_timeout_s + math.ceil(LONGER * longest_s)
            plans[role] = replace(plans[role], start_timeout_s=enough_s)
    for role, name in DEADLINES.items():
        options = plans[role].options
        if name in options and name not in written.get(role, {}):
            longer = {name: options[name] + first_call_allowance_s(timing)}
            plans[role] = replace(plans[role], options={**options, **longer})
    return plans


def first_call_allowance_s(timing: Timing) -> float:
    """Seconds that deadlines of later calls have more for the first one."""
    return math.ceil(LONGER * timing.first_call_s) if timing.first_call_s > WORTH_S else 0.0
