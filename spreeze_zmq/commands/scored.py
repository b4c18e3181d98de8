"""What the score of a run is a return of: scores of two tasks compare as little as metres with seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.trust import TIME_LIMIT
from spreeze_zmq.evaluation.arena import time_limit_of
from spreeze_zmq.plan.roles import EVALUATOR


def episode_steps(plan: Mapping[str, Any]) -> int:
    """As ``arena.episode_steps``, of the plan of a run.json, whoever wrote it."""
    own, stated = plan["environment"].get(TIME_LIMIT), _options(plan).get("episode_steps")
    return time_limit_of(*(steps if type(steps) is int else None for steps in (own, stated)))


def rewarded_by(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What may decide, beside the environment and the length of episodes, what the same behaviour returns, by
    key of the topology or file of the user's: whether it does only the environment's own code knows.
    """
    kwargs = plan["run"].get("env_kwargs")
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    found = {f"run.env_kwargs.{name}": value for name, value in kwargs.items() if name != TIME_LIMIT}
    code = plan["own_code"].get("environment")
    found |= {f"code of {name}": made for name, made in (code if isinstance(code, Mapping) else {}).items()}
    if _options(plan).get("randomize") is True:
        found["run.randomize"] = plan["run"].get("randomize")
    return found


def _options(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    options: Mapping[str, Any] = plan["components"].get(EVALUATOR, {}).get("options", {})
    return options
