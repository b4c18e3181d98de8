"""What a run has found out about a machine, kept in the user's cache: the next one of its kind begins there.

One small JSON file for each machine, environment and setting. A file that cannot be read is passed over with
one line, and so is a cache that cannot be written: runs do without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spreeze_zmq.metrics import write_json
from spreeze_zmq.topology.plan import Plan
from spreeze_zmq.topology.resolve import available_cores

log = logging.getLogger("spreeze")

#: The packages whose speed is in the figures.
PACKAGES = ("spreeze_zmq", "numpy", "torch", "mujoco", "gymnasium")
#: No machine runs more processes than this of one role.
MOST = 100_000


@dataclass(frozen=True)
class Tuning:
    """A count that was right, and what it gave.

    Attributes:
        samplers: processes.
        env_steps_per_s: that all of them produced together.
        trained_transitions_per_s: that the critic-learner trained on.
    """

    samplers: int
    env_steps_per_s: float
    trained_transitions_per_s: float


def begin(plan: Plan) -> tuple[Plan, str]:
    """The plan with the number of samplers that was right the last time, and where it comes from.

    A count that the topology fixes, and a lock-step run, which must repeat itself, stay as they are; then the
    text is empty.
    """
    sampler = plan.components["sampler"]
    if not movable(plan):
        return plan, ""
    found = recall(plan)
    if found is None:
        return plan, ""
    initial = min(max(found.samplers, sampler.count.minimum), sampler.count.maximum)
    sampler = replace(sampler, count=replace(sampler.count, initial=initial))
    why = (
        f"as on this machine before: {found.samplers} gave {found.env_steps_per_s:,.0f} env steps and "
        f"{found.trained_transitions_per_s:,.0f} trained transitions a second"
    )
    return replace(plan, components={**plan.components, "sampler": sampler}), why


def movable(plan: Plan) -> bool:
    """Whether the number of samplers is this machine's to choose: the topology gives a range, the launcher
    starts them, and the run need not repeat itself exactly.
    """
    sampler = plan.components["sampler"]
    ranged = sampler.count.minimum < sampler.count.maximum
    return ranged and sampler.launched and plan.balance.mode != "lockstep"


def recall(plan: Plan) -> Tuning | None:
    """What the cache knows of this machine and plan; None where that is nothing, or nothing readable."""
    path = file_of(plan)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        tuning = Tuning(**values["tuning"])
        if values["of"] != _subject(plan):
            raise ValueError("it is about another machine or run")
        if type(tuning.samplers) is not int or not 1 <= tuning.samplers <= MOST:
            raise ValueError(f"{tuning.samplers!r} samplers")
        float(tuning.env_steps_per_s), float(tuning.trained_transitions_per_s)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s is passed over: %s; delete it, or let `spreeze tune` write it anew", path, error)
        return None
    return tuning


def remember(plan: Plan, tuning: Tuning) -> Path | None:
    """Keep what was measured; returns where, or None where it cannot be written."""
    path = file_of(plan)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"of": _subject(plan), "tuning": asdict(tuning)})
    except OSError as error:
        log.warning("what was measured is not kept: %s: %s", path, error.strerror)
        return None
    return path


def file_of(plan: Plan) -> Path:
    """Where the cache keeps this machine and plan."""
    text = json.dumps(_subject(plan), sort_keys=True)
    return cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/spreeze_zmq``, or the same below ``~/.cache``."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if chosen and Path(chosen).is_absolute() else Path("~/.cache").expanduser()
    return base / "spreeze_zmq"


def machine() -> dict[str, Any]:
    """What of a machine decides how fast a run is on it."""
    return {"cpu": _cpu_model(), "cores": available_cores(), "packages": _versions()}


def _subject(plan: Plan) -> dict[str, Any]:
    """Everything that the right count depends on, in JSON's own types."""
    roles = ("sampler", "critic_learner", "actor_learner")
    subject = {
        "machine": machine(),
        "env": plan.run.env,
        "env_kwargs": plan.run.env_kwargs,
        "algorithm": plan.algorithm,
        "balance": {"mode": plan.balance.mode, "replay_ratio": plan.balance.replay_ratio},
        "components": {role: _about(plan, role) for role in roles},
    }
    plain: dict[str, Any] = json.loads(json.dumps(subject))
    return plain


def _about(plan: Plan, role: str) -> Mapping[str, Any]:
    component = plan.components[role]
    return {"use": component.use, "threads": component.threads, "options": component.options}


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@cache
def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found
