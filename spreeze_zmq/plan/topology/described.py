"""An environment that no Python program makes: the topology describes its observations and actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spreeze_zmq.base.schema import option, options_of
from spreeze_zmq.envs import EnvironmentSpec
from spreeze_zmq.envs.bounds import action_limits, loose_bounds, rounded_inward
from spreeze_zmq.envs.forms import BYTE_MAX
from spreeze_zmq.envs.spec import ActionKind
from spreeze_zmq.plan.roles import EVALUATOR, SAMPLER
from spreeze_zmq.plan.topology.tables import Mistakes


@dataclass(frozen=True)
class DescribedEnvironment:
    """The keys of ``[run]`` that describe an environment."""

    obs_shape: tuple[int, ...] | None = option(
        None, "describes an environment that no Python program makes", minimum=1
    )
    obs_dtype: str | None = option(None, "with obs_shape; float32 by default", choices=("float32", "uint8"))
    obs_max: int | None = option(
        None, "with obs_dtype uint8: the largest number; 255 by default", minimum=1, maximum=BYTE_MAX
    )
    action_low: tuple[float, ...] | None = option(
        None, "with obs_shape: the lower bounds of a box of actions"
    )
    action_high: tuple[float, ...] | None = option(None, "with obs_shape: the upper bounds")
    action_sizes: tuple[int, ...] | None = option(
        None, "with obs_shape: the choices of each discrete action", minimum=2
    )
    max_episode_steps: int | None = option(None, "with obs_shape: its time limit; none by default", minimum=1)


def described(run: Mapping[str, Any], mistakes: Mistakes) -> EnvironmentSpec | None:
    """The environment of a ``[run]`` with ``obs_shape``; None if its keys contradict each other."""
    before, sizes = len(mistakes.found), run["action_sizes"]
    low, high = run["action_low"], run["action_high"]
    if not run["obs_shape"]:
        mistakes.add(("run", "obs_shape"), "expected at least one number", "as in obs_shape = [11]")
    if run["obs_max"] is not None and run["obs_dtype"] != "uint8":
        problem = "is the largest number of observations of bytes, and these are float32"
        mistakes.add(("run", "obs_max"), problem, 'leave it out, or write obs_dtype = "uint8"')
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
    kind: ActionKind
    low32, high32, loose = None, None, ""
    limits: tuple[Sequence[float | None], ...] = ()
    if low is not None and high is not None:
        bounds = np.array(low, np.float64), np.array(high, np.float64)
        if loose := loose_bounds(*bounds):
            limits = action_limits(*bounds)
        else:
            low32, high32 = rounded_inward(*bounds)
    kind = "box" if sizes is None else "discrete" if len(sizes) == 1 else "multi_discrete"
    return EnvironmentSpec(
        run["env"],
        run["env_kwargs"],
        tuple(run["obs_shape"]),
        run["obs_dtype"] or "float32",
        kind,
        () if kind == "discrete" else (len(sizes or low),),
        low32,
        high32,
        tuple(sizes or ()),
        run["max_episode_steps"],
        described=True,
        obs_max=None if run["obs_max"] == BYTE_MAX else run["obs_max"],
        loose_bounds=loose,
        action_limits=limits,
    )


def check_described(
    run: Mapping[str, Any], shipped: Collection[str], without: Collection[str], mistakes: Mistakes
) -> None:
    """Note the keys that a described environment cannot have, and its keys in a run that has another.

    Args:
        run: the table.
        shipped: roles whose program is the shipped one.
        without: roles that the launcher leaves out.
        mistakes: where they are noted.
    """
    if run["obs_shape"] is None:
        for key in (each.name for each in options_of(DescribedEnvironment)):
            if run[key] is not None:
                hint = "set it in run.env_kwargs" if key == "max_episode_steps" else "leave it out"
                problem = "describes an environment that no Python program makes, together with run.obs_shape"
                mistakes.add(("run", key), problem, hint)
        return
    if SAMPLER in shipped and SAMPLER not in without:
        problem = f"the shipped sampler cannot make {run['env']}, which run.obs_shape describes"
        mistakes.add(("components", SAMPLER, "use"), problem, 'give one that can: use = "./my_sampler"')
    if EVALUATOR in shipped and run["stop"].get("return") is not None:
        problem = f"nothing is evaluated: the shipped evaluator cannot make {run['env']}"
        mistakes.add(("run", "stop", "return"), problem, "stop by env_steps or minutes, or give an evaluator")
    if run["randomize"]:
        mistakes.add(("run", "randomize"), "only the shipped sampler randomizes", "leave it out")
