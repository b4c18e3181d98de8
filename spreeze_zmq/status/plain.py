"""A status as one line of ``key=value`` pairs, for a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreeze_zmq.plan.roles import SAMPLER
from spreeze_zmq.status.progress import progress
from spreeze_zmq.status.stages import RUNNING
from spreeze_zmq.status.words import decimal, mistakes


def plain_line(status: Mapping[str, Any], stages: Mapping[str, str]) -> str:
    """``t=12.0s state=training env_steps=...``: always the same keys in the same order, ``-`` for no value.
    A figure that summary.json has too has the same name there.

    Args:
        status: the newest.
        stages: of the processes, by name; those that are not running are named at the end.
    """
    last, best = status["evaluation"]["last"], status["evaluation"]["best"]
    way = progress(status)
    waiting = [name for name, stage in stages.items() if stage != RUNNING]
    fields = {
        "t": f"{status['t_s']:.1f}s",
        "left": "-" if way is None else f"{way.left_s:.0f}s",
        "state": status["state"].replace(" ", "_"),
        "env_steps": str(status["env_steps"]),
        "env_steps_per_s": f"{status['env_steps_per_s']:.0f}",
        "critic_updates": str(status["critic_updates"]),
        "critic_updates_per_s": f"{status['critic_updates_per_s']:.1f}",
        "actor_updates": str(status["actor_updates"]),
        "actor_updates_per_s": f"{status['actor_updates_per_s']:.1f}",
        "replay_ratio": f"{status['replay_ratio']['measured']:.2f}",
        "policy_lag": f"{status['policy_lag']['p50']:g}",
        "episodes": str(status["episodes"]["count"]),
        "training_return": _decimal(status["episodes"]["mean_return"]),
        "evaluation": _decimal(last and last["mean_return"]),
        "best_return": _decimal(best and best["mean_return"]),
        "samples_dropped": str(status["samples"]["dropped"]),
        "messages_refused": str(sum(row["count"] for row in mistakes(status))),
        "failures": str(status.get("num_failures", 0)),
        "samplers": str(status["workers"].get(SAMPLER, {}).get("count", 0)),
        "waiting": ",".join(waiting) or "-",
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _decimal(value: float | None) -> str:
    return decimal(value).replace(",", "")
