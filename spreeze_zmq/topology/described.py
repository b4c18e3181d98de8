"""An environment that no Python program makes: the topology says what it observes and how it acts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.topology.mistakes import Mistakes
from spreeze_zmq.topology.options import DESCRIBED

if TYPE_CHECKING:
    from spreeze_zmq.topology.components import Declared


def described(run: Mapping[str, Any], mistakes: Mistakes) -> EnvironmentSpec | None:
    """The environment of ``[run]`` with ``obs_shape``; None where its keys contradict each other."""
    before, sizes = len(mistakes.found), run["action_sizes"]
    low, high = run["action_low"], run["action_high"]
    if not run["obs_shape"]:
        mistakes.add(("run", "obs_shape"), "expected at least one number", "as in obs_shape = [11]")
    if (low is None) == (sizes is None) or (low is None) != (high is None):
        problem = "expected action_low and action_high, or action_sizes, to say how it acts"
        mistakes.add(("run", "obs_shape"), problem, "as in action_low = [-1.0], action_high = [1.0]")
    elif sizes is not None and not sizes:
        mistakes.add(("run", "action_sizes"), "expected at least one number", "as in action_sizes = [4]")
    elif low is not None and (len(low) != len(high) or not low or not (np.array(low) < high).all()):
        problem = f"expected as many numbers as action_low has, each above it, got {high}"
        mistakes.add(("run", "action_high"), problem, f"action_low is {low}")
    if len(mistakes.found) > before or run["env"] is None:
        return None
    kind: Literal["box", "discrete", "multi_discrete"]
    kind = "box" if sizes is None else "discrete" if len(sizes) == 1 else "multi_discrete"
    return EnvironmentSpec(
        run["env"],
        run["env_kwargs"],
        tuple(run["obs_shape"]),
        run["obs_dtype"] or "float32",
        kind,
        () if kind == "discrete" else (len(sizes or low),),
        None if low is None else np.array(low, np.float32),
        None if low is None else np.array(high, np.float32),
        tuple(sizes or ()),
        run["max_episode_steps"],
        described=True,
    )


def check_described(
    run: Mapping[str, Any], declared: Mapping[str, Declared], without: Collection[str], mistakes: Mistakes
) -> None:
    """Note what a described environment cannot have."""
    if run["obs_shape"] is None:
        for key in (option.name for option in DESCRIBED):
            if run[key] is not None:
                hint = "set it in run.env_kwargs" if key == "max_episode_steps" else "leave it out"
                problem = "describes an environment that no Python program makes, together with run.obs_shape"
                mistakes.add(("run", key), problem, hint)
        return
    shipped = {role for role in (SAMPLER, EVALUATOR) if role in declared and declared[role].use == role}
    if SAMPLER in shipped - set(without):
        problem = f"the shipped sampler cannot make {run['env']}, which run.obs_shape describes"
        mistakes.add(("components", SAMPLER, "use"), problem, 'give one that can: use = "./my_sampler"')
    if EVALUATOR in shipped and run["stop"].get("return") is not None:
        problem = f"nothing is evaluated: the shipped evaluator cannot make {run['env']}"
        mistakes.add(("run", "stop", "return"), problem, "stop by env_steps or minutes, or give an evaluator")
    if run["randomize"]:
        mistakes.add(("run", "randomize"), "only the shipped sampler randomizes", "leave it out")
