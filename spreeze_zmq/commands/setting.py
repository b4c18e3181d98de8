"""What decides what a past run learned and how it was scored; runs of one setting differ in their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spreeze_zmq.base.own_code import is_file
from spreeze_zmq.base.schema.scheduled import goes_over_run
from spreeze_zmq.plan.roles import EVALUATOR, LEARNERS, SAMPLER, without_deadlines
from spreeze_zmq.plan.topology.resolve import MAX_SAMPLERS_ON_FEW_CORES
from spreeze_zmq.run.curves import Array, Curve
from spreeze_zmq.run.history import PastRun

#: What decides how groups learn, of a run of several.
_OF_GROUPS = ("count", "every_updates", "outer", "outer_learning_rate", "outer_momentum")
#: Options of components by which nothing else is learned or measured, only sooner.
_WITHOUT_EFFECT = ("device", "workers", "max_failures", "videos")
#: Characters of a digest that a label shows.
SHOWN = 8


@dataclass(frozen=True)
class Setting:
    """Runs of one setting, which differ only in their seed; ``curves`` are theirs, in the same order."""

    env: str
    label: str
    runs: Sequence[PastRun]
    curves: Sequence[Curve]

    @property
    def best(self) -> Array:
        """``[R]`` returns of the best policies: of fresh episodes, since the highest look is too high, or
        that where there are none.
        """
        confirmed = [run.summary.get("best_return") for run in self.runs]
        highest = [curve.mean_return.max() for curve in self.curves]
        pairs = zip(highest, confirmed, strict=True)
        return np.array([look if fresh is None else fresh for look, fresh in pairs], np.float64)


def setting_of(run: PastRun) -> dict[str, Any]:
    """The options that decide what is learned, as a flat table: runs of one setting have them in common.
    Those that were measured, or follow from the machine, are as the topology states them; but on-policy or in
    lockstep the number of samplers is part of the rounds, so that ``count = "auto"`` is the number there was.
    """
    plan, about = run.plan, run.plan["run"]
    scaling = plan["measured"].get("scaling")
    rows = scaling.get("options") if isinstance(scaling, Mapping) else None
    stated = rows if isinstance(rows, Mapping) else {}
    setting = {f"run.{name}": about.get(name) for name in ("env_kwargs", "randomize")}
    setting["run.env"] = run.env
    for code in (code for code in plan["own_code"].values() if isinstance(code, Mapping)):
        for name, made in code.items():
            setting[f"code of {name}"] = str(made)[:SHOWN] if is_file(name) else str(made)
    setting |= {f"algorithm.{name}": value for name, value in plan["algorithm"].items()}
    setting |= {f"algorithm.{name}": row["stated"] for name, row in stated.items() if _is_stated(row)}
    if "batch_size" in plan["measured"]:
        setting["algorithm.batch_size"] = "auto"
    setting |= {f"balance.{name}": value for name, value in plan["balance"].items()}
    for key, source in plan["data"].items():
        found = source if isinstance(source, Mapping) else {}
        setting |= {f"data.{key}.{name}": found.get(name) for name in ("source", "share", "episodes")}
    if plan["groups"].get("count", 1) != 1:
        setting |= {f"groups.{name}": plan["groups"].get(name) for name in _OF_GROUPS}
    if goes_over_run(plan["algorithm"]):
        setting |= {f"run.stop.{name}": value for name, value in about["stop"].items()}
    for role in (SAMPLER, *LEARNERS, EVALUATOR):
        component = plan["components"].get(role, {})
        options = without_deadlines(component.get("options", {}))
        setting |= {
            f"{role}.{name}": value
            for name, value in {"use": component.get("use"), **options}.items()
            if name not in _WITHOUT_EFFECT
        }
    setting[f"{SAMPLER}.count"] = _count(plan["components"].get(SAMPLER, {}).get("count"))
    return setting


def _is_stated(row: Any) -> bool:
    return isinstance(row, Mapping) and "stated" in row


def _count(found: Any) -> Any:
    """The number of samplers, or its range; a wide one from 1 on is as "auto", which ends at the number of
    the machine's cores.
    """
    count = found if isinstance(found, Mapping) else {}
    low, high = count.get("minimum"), count.get("maximum")
    if low == high:
        return low
    is_wide = low == 1 and isinstance(high, int) and high >= MAX_SAMPLERS_ON_FEW_CORES
    return "auto" if is_wide else [low, high]
