"""Lines about what a topology gives and no run of its kind reads: of data alone, in rounds, of one learner or
group, or by publications that are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spreeze_zmq import algorithms
from spreeze_zmq.base.schema import options_of, show
from spreeze_zmq.plan.parts import BalancePlan, GroupsPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ACTOR_LEARNER, EVALUATOR, SAMPLER, VISUALIZER
from spreeze_zmq.plan.topology.algorithm import ROLLOUT_STEPS
from spreeze_zmq.plan.topology.component_file import read_component_file
from spreeze_zmq.plan.topology.dial import MODES
from spreeze_zmq.plan.topology.reference import component_options

#: Why what paces learners by their samples has no effect.
NOTHING_SAMPLED = "without samplers the learners train without a pause"
_NO_SAMPLES = "nothing is sampled"
#: Options of the sampler that say nothing about data alone, and what "auto" is there of those that have one.
_OF_SAMPLING = ("backend", "workers", "max_failures", "threads", "nice")
_AUTO = {"threads": 1, "rollout_steps": ROLLOUT_STEPS}
_ROUNDS = "each round is collected and trained on as a whole"


def idle(plan: Plan, *, defaults: bool = False) -> Iterator[str]:
    """Yield a line for each value that was given, is not the default (or is, with ``defaults``), and that no
    run of this kind reads.
    """
    for place, value, default, why in (
        *_of_algorithm(plan),
        *_of_run(plan),
        *_of_balance(plan),
        *_of_components(plan),
        *_of_groups(plan),
    ):
        if defaults or value not in (default, "auto"):
            stated = "" if isinstance(value, dict) else f" = {show(value)}"
            yield f"{place}{stated} has no effect: {why}"


#: Where a value stands, itself, its default, and why nothing reads it.
Unread = tuple[str, Any, Any, str]


def _of_algorithm(plan: Plan) -> Iterator[Unread]:
    kind, given = algorithms.get(plan.run.algorithm), plan.algorithm
    both_sizes = given.get("critic_hidden_sizes") and given.get("actor_hidden_sizes")
    reasons = {
        "learning_starts": (plan.offline, NOTHING_SAMPLED),
        "initial_epsilon": (plan.offline, _NO_SAMPLES),
        "exploration_steps": (plan.offline, _NO_SAMPLES),
        "policy_delay": (not kind.has_policy_loss(), "one learner trains critic and policy"),
        "initial_log_std": (plan.environment.action_kind != "box", "the actions are discrete"),
        "hidden_sizes": (both_sizes, "critic_hidden_sizes and actor_hidden_sizes are given"),
        "target_noise_clip": (given.get("target_noise") == 0, "algorithm.target_noise is 0"),
    }
    for option in options_of(kind.Options):
        holds, why = reasons.get(option.name, (False, ""))
        if holds:
            yield f"algorithm.{option.name}", given[option.name], option.default, why


def _of_run(plan: Plan) -> Iterator[Unread]:
    if plan.learning.on_policy and not plan.balance.in_order:  # there it is set by itself
        yield "run.save_replay", plan.run.save_replay, False, "an on-policy algorithm has no replay"
    if plan.offline and not plan.components[EVALUATOR].options.get("randomize"):
        yield "run.randomize", plan.run.randomize, {}, _NO_SAMPLES


def _of_balance(plan: Plan) -> Iterator[Unread]:
    balance = plan.balance
    mode = MODES[balance.mode]
    if plan.offline and not balance.publish_every_updates:  # a round of samples that there are not is counted
        yield "balance.replay_ratio", balance.replay_ratio, BalancePlan.replay_ratio, NOTHING_SAMPLED
    if plan.offline and not balance.in_order:
        yield "balance.max_policy_lag", balance.max_policy_lag, mode["max_policy_lag"], _NO_SAMPLES
    if (plan.offline or plan.learning.on_policy) and not balance.in_order:
        why = _NO_SAMPLES if plan.offline else _ROUNDS
        yield "balance.slack_rollouts", balance.slack_rollouts, mode["slack_rollouts"], why


def _of_components(plan: Plan) -> Iterator[Unread]:
    """Of the shipped ones."""
    if plan.balance.publish_every_updates:
        for role in plan.learning.learners:
            yield from _unread(plan, role, ("publish_interval_s", "publish_cost"), "weights go by count")
    if plan.learning.on_policy and not plan.balance.in_order:
        yield from _unread(plan, ACTOR_LEARNER, ("slack_updates",), _ROUNDS)
    if plan.offline:
        names = list(_OF_SAMPLING)
        if not plan.balance.publish_every_updates:  # by the size of a round
            names.append("envs")
            names += [] if plan.algorithm.get("memory_size") else ["rollout_steps"]  # a sequence's
        names += [] if plan.balance.in_order else ["max_restarts"]  # there it is replaced
        yield from _unread(plan, SAMPLER, names, _NO_SAMPLES)
    if not plan.components[VISUALIZER].options.get("show_agent", True):
        yield from _unread(plan, VISUALIZER, ("cost_share",), "show_agent is false")


def _unread(plan: Plan, role: str, names: Iterable[str], why: str) -> Iterator[Unread]:
    component = plan.components.get(role)
    if component is None or component.use != role:
        return
    own = read_component_file(Path(component.folder)).options
    defaults = {option.name: option.default for option in (*component_options(role), *own)} | _AUTO
    values = {**vars(component), **component.options}
    for name in names:
        yield f"components.{role}.{name}", values[name], defaults[name], why


def _of_groups(plan: Plan) -> Iterator[Unread]:
    groups = plan.groups
    for option in options_of(GroupsPlan):
        value = getattr(groups, option.name)
        if groups.count == 1:
            yield f"groups.{option.name}", value, option.default, "groups.count is 1"
        elif groups.outer == "average" and option.name.startswith("outer_"):
            yield f"groups.{option.name}", value, option.default, 'groups.outer is "average"'
