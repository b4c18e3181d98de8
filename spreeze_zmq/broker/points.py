"""Points of a run's curves, for TensorBoard and other loggers.

Returns, lengths, counts and evaluations have the names that Stable-Baselines3 uses; ``time/fps`` is the
present rate, there the mean since the start. Losses and other gauges have ours, but for ``GAUGE_CURVES``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spreeze_zmq.base.journal import is_look

#: Path of a figure in the status -> its curve.
STATUS_CURVES = (
    (("episodes", "mean_return"), "rollout/ep_rew_mean"),
    (("episodes", "mean_length"), "rollout/ep_len_mean"),
    (("env_steps_per_s",), "time/fps"),
    (("env_steps",), "time/total_timesteps"),
    (("t_s",), "time/time_elapsed"),
    (("critic_updates",), "train/n_updates"),
    (("critic_updates_per_s",), "time/critic_updates_per_s"),
    (("actor_updates_per_s",), "time/actor_updates_per_s"),
    (("trained_transitions_per_s",), "time/trained_transitions_per_s"),
    (("replay_ratio", "measured"), "balance/replay_ratio"),
    (("policy_lag", "recent_p50"), "balance/policy_lag_p50"),
    (("policy_lag", "recent_p99"), "balance/policy_lag_p99"),
)
#: Learners' gauges -> their curves; any other gauge is ``train/NAME``.
GAUGE_CURVES = {"temperature": "train/ent_coef", "replay_ratio": "balance/replay_ratio"}
EVALUATION_CURVES = {
    "mean_return": "eval/mean_reward",
    "std_return": "eval/std_reward",
    "mean_length": "eval/mean_ep_length",
}
#: In place of ``eval/`` where a limit of time cut episodes: such means compare with no others.
CUT = "eval_cut_by_time/"
INFO_CURVES = {"is_success": "eval/success_rate"}


def of_status(status: Mapping[str, Any], gauges: Mapping[str, float]) -> dict[str, Any]:
    """The points of a status and of the learners' gauges, by curve; None where there is no figure."""
    values: dict[str, Any] = {
        GAUGE_CURVES.get(name, f"train/{name}"): value for name, value in gauges.items()
    }
    figures = {curve: _at(status, path) for path, curve in STATUS_CURVES}
    for quantile in ("p50", "p99"):  # a status of an older release has that of all rollouts so far alone
        if figures[curve := f"balance/policy_lag_{quantile}"] is None:
            figures[curve] = _at(status, ("policy_lag", quantile))
    return values | figures


def of_evaluation(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The points of a look at a policy, and of the best one, which the first is for its look; none of another
    one that was confirmed. Where time cut episodes the curves are others, of ``CUT``.
    """
    points = _whole(fields)
    cut = fields.get("timed_out") is True
    return {name.replace("eval/", CUT, 1): value for name, value in points.items()} if cut else points


def _whole(fields: Mapping[str, Any]) -> dict[str, Any]:
    best = {"eval/best_mean_reward": fields["mean_return"]} if fields["best"] else {}
    if not is_look(fields):
        return best
    info = fields.get("info", {})
    values = {curve: fields[name] for name, curve in EVALUATION_CURVES.items()}
    told = {INFO_CURVES.get(name, f"eval/info/{name}"): value for name, value in info.items()}
    return {**values, **told, **best}


def step_of(status: Mapping[str, Any], *, offline: bool) -> int:
    """Where the points of a status are drawn: at its env steps, of a run without samplers at its updates, in
    both cases with those of the runs that it goes on from.
    """
    return int(status["critic_updates" if offline else "env_steps"])


def step_of_evaluation(fields: Mapping[str, Any], newest: int, *, offline: bool) -> int:
    """Where the points of an evaluation are drawn: those of a look at the env steps of its policy; those of
    the best policy, and all of a run without samplers, at the ``newest`` step that has been drawn.
    """
    if offline:
        return max(newest, 0)
    env_steps = int(fields["env_steps"])
    return env_steps if is_look(fields) else max(newest, env_steps)


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are finite numbers."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _at(status: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = status
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
