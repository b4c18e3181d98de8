"""Whether a run can go on from another one's checkpoint, known before anything starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.errors import CheckpointError
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.run.history import read_run
from spreeze_zmq.schema import options_of, show

#: What networks are made for, of an environment.
SPACES = ("obs_shape", "obs_dtype", "action_kind", "action_shape", "action_sizes", "action_low")


def check_fit(plan: Plan, run: Path) -> None:
    """Hold a plan against the run that it is to go on from.

    Raises:
        InputError: ``run`` is no run's folder.
        CheckpointError: it was another environment, other spaces, another algorithm or other networks.
    """
    before, now = read_run(run).plan, json.loads(plan.to_json())
    problems = [
        f"{what} is {show(new)} here and was {show(old)} there"
        for what, old, new in _differences(before, now)
        if old != new
    ]
    if problems:
        raise CheckpointError(f"--resume {run} does not fit: {'; '.join(problems)}")


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What, and its value before and now, of everything that must be the same."""
    pairs = [(f"run.{name}", before["run"].get(name), now["run"][name]) for name in ("env", "algorithm")]
    if pairs[0][1] != pairs[0][2]:
        return pairs
    spaces = before.get("environment", {}), now["environment"]
    pairs += [(f"the environment's {name}", spaces[0].get(name), spaces[1][name]) for name in SPACES]
    if before["run"].get("algorithm") != now["run"]["algorithm"]:
        return pairs
    tables = before.get("algorithm", {}), now["algorithm"]
    fixed = [
        option.name
        for option in options_of(algorithms.get(now["run"]["algorithm"]).Options)
        if option.fixed and option.name in tables[0]
    ]
    return pairs + [(f"algorithm.{name}", tables[0][name], tables[1][name]) for name in fixed]
