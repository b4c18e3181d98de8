"""The report of ``spreeze-launch --check`` on a topology without mistakes."""

from __future__ import annotations

from collections.abc import Sequence

from spreeze_zmq.learner.setup import check_memory
from spreeze_zmq.plan.form import to_plain
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import SAMPLER


def report(plan: Plan, advice: Sequence[str] = (), remarks: Sequence[str] = ()) -> str:
    """What would be trained, when it ends, the number of processes, the memory of the replays, lines of
    advice, and remarks about the environment.

    Raises:
        InputError: the replays of all learners do not fit in the memory.
    """
    rows = {
        "environment": environment(plan),
        "algorithm": plan.run.algorithm,
        "ends": ends(plan),
        "processes": ", ".join(_count(plan, role) for role in plan.components),
        "replay": replay(check_memory(plan)),
    }
    if plan.environment.described:
        rows["evaluation"] = "none by the shipped evaluator: no Python program makes this environment"
    pairs = [*rows.items(), *(("advice", line) for line in advice), *(("remark", line) for line in remarks)]
    return "\n".join(f"  {name:12} {text}" for name, text in pairs)


def environment(plan: Plan) -> str:
    """The environment's spaces and time limit."""
    spec = plan.environment
    action = f"one each of {list(spec.action_sizes)}"
    if spec.action_kind == "box":
        action = f"{list(spec.action_shape)} numbers"
    elif spec.action_kind == "discrete":
        action = f"one of {spec.num_actions}"
    limit = (
        f"at most {spec.max_episode_steps} steps an episode" if spec.max_episode_steps else "no time limit"
    )
    return f"{spec.id}: observations {list(spec.obs_shape)} {spec.obs_dtype}, actions {action}, {limit}"


def ends(plan: Plan) -> str:
    """The stop conditions of a run."""
    stop = to_plain(plan.run.stop)
    given = [f"{name} {value:,g}" for name, value in stop.items() if value is not None]
    return f"at {' or '.join(given)}" if given else "never, until Ctrl-C (--set run.stop.minutes=10 ends it)"


def replay(sizes: dict[str, int]) -> str:
    """The memory of each learner's replay and their total."""
    if not any(sizes.values()):
        return "none: each round of rollouts is thrown away"
    each = ", ".join(f"{role} {size / 1e9:.2f} GB" for role, size in sizes.items())
    return f"{each}; together {sum(sizes.values()) / 1e9:.2f} GB when full"


def _count(plan: Plan, role: str) -> str:
    component = plan.components[role]
    count = component.count
    number = f"{count.initial}" + f" to {count.maximum}" * (count.minimum < count.maximum)
    envs = component.options.get("envs") if role == SAMPLER else None
    of = f" of {envs} environments" if envs else ""
    return f"{number} {role}{of}" if component.launched else f"{role} by hand"
