"""``[balance]``: the dial from free to lock-step; each mode is a set of numbers for the same code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.balance import Schedule, updates_per_round
from spreeze_zmq.plan.parts import BalancePlan, ComponentPlan, Count, LearningPlan
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.plan.roles import ACTOR_LEARNER, LEARNERS, SAMPLER
from spreeze_zmq.topology.mistakes import Mistakes

#: The values of each mode, for keys that the topology leaves at "auto".
MODES: dict[str, dict[str, Any]] = {
    "free": {
        "max_policy_lag": None,
        "slack_rollouts": 2,
        "publish_every_updates": 0,
        "in_order": False,
    },
    "bounded": {
        "max_policy_lag": 20,
        "slack_rollouts": 2,
        "publish_every_updates": "round",
        "in_order": False,
    },
    "lockstep": {
        "max_policy_lag": 1,
        "slack_rollouts": 0,
        "publish_every_updates": "round",
        "in_order": True,
    },
}


#: ``max_policy_lag`` of on-policy algorithms: rounds that may be collected while one is trained on.
ON_POLICY_LAG = {"free": 1, "bounded": 1, "lockstep": 0}


def expand(written: Mapping[str, Any], *, on_policy: bool) -> dict[str, Any]:
    """``[balance]`` with every ``"auto"`` replaced by the mode's value."""
    mode = MODES[written["mode"]]
    if on_policy:
        lag = ON_POLICY_LAG[written["mode"]]
        mode = {**mode, "max_policy_lag": lag, "publish_every_updates": "round"}
    return {key: mode[key] if value == "auto" and key in mode else value for key, value in written.items()}


def resolve_balance(
    written: Mapping[str, Any],
    components: dict[str, ComponentPlan],
    learning: LearningPlan,
    mistakes: Mistakes,
) -> tuple[BalancePlan, dict[str, ComponentPlan]]:
    """The plan of the balance, and the components changed as it needs.

    Args:
        written: ``[balance]`` as checked, ``"auto"`` where the mode decides.
        components: by role.
        learning: the facts about the algorithm.
        mistakes: where to note numbers that contradict each other.
    """
    values = expand(written, on_policy=learning.on_policy)
    sampler = components[SAMPLER]
    rollout = int(sampler.options.get("rollout_steps", 0)) * int(sampler.options.get("envs", 0))
    if learning.on_policy:
        components = _resolve_rounds(values, written, components, learning, rollout, mistakes)
        sampler = components[SAMPLER]
    if values["publish_every_updates"] and not learning.batch_size:
        problem = (
            '"auto" is measured, and can be another number in the next run; publishing by count, as in the '
            'modes "bounded" and "lockstep", needs a fixed one'
        )
        mistakes.add(("algorithm", "batch_size"), problem, 'write a number, or balance.mode = "free"')
        values["publish_every_updates"] = 0
    if values["publish_every_updates"] and not rollout:
        problem = "counting needs the sampler's rollout_steps and envs"
        mistakes.add(("balance", "publish_every_updates"), problem, "write 0 to publish by the clock")
        values["publish_every_updates"] = 0
    if values["publish_every_updates"] == "round":
        round_transitions = sampler.count.initial * rollout
        every = updates_per_round(values["replay_ratio"], learning.batch_size, round_transitions)
        values["publish_every_updates"] = every
    values["pin"] = {"auto": "auto", True: "always", False: "never"}[values["pin"]]
    balance = BalancePlan(**values, rollout_transitions=rollout)
    if balance.in_order and not mistakes.found:
        _check_order(balance, components, learning, mistakes)
        components = in_order(components)
    return balance, components


def _resolve_rounds(
    values: dict[str, Any],
    written: Mapping[str, Any],
    components: dict[str, ComponentPlan],
    learning: LearningPlan,
    rollout: int,
    mistakes: Mistakes,
) -> dict[str, ComponentPlan]:
    """Set the numbers of rounds in ``values``; returns the components with a fixed number of samplers, since
    a round is one rollout of each.
    """
    if written["replay_ratio"] != BalancePlan.replay_ratio:
        problem = "an on-policy algorithm trains on each transition for its number of epochs and no more"
        mistakes.add(("balance", "replay_ratio"), problem, "leave it out, and set algorithm.epochs")
    if values["max_policy_lag"] is None:
        problem = "an on-policy algorithm needs a bound of the lag"
        mistakes.add(("balance", "max_policy_lag"), problem, "write a number of rounds; 0 waits for each")
        values["max_policy_lag"] = ON_POLICY_LAG[written["mode"]]
    if not rollout:
        problem = "rounds need to know the sampler's rollout_steps and envs"
        mistakes.add(("components", SAMPLER), problem, "give it these options")
    count = components[SAMPLER].count.initial
    transitions = max(1, count * rollout)
    values["replay_ratio"] = float(learning.epochs)
    if values["publish_every_updates"]:
        values["publish_every_updates"] = learning.epochs * -(-transitions // learning.batch_size)
    fixed = replace(components[SAMPLER], count=Count(count, count, count))
    return {**components, SAMPLER: fixed}


def schedule(plan: Plan) -> Schedule | None:
    """The schedule of a run; see :func:`schedule_of`."""
    return schedule_of(plan.balance, plan.components, plan.learning)


def schedule_of(
    balance: BalancePlan, components: Mapping[str, ComponentPlan], learning: LearningPlan
) -> Schedule | None:
    """The schedule of a run that counts; None for one that publishes by the clock or has no bound of the lag.

    Shares are sized for the smallest number of samplers, so that these can always go on alone.
    """
    if not balance.publish_every_updates or balance.max_policy_lag is None:
        return None
    return Schedule(
        replay_ratio=balance.replay_ratio,
        batch_size=learning.batch_size,
        learning_starts=learning.learning_starts,
        publish_every=balance.publish_every_updates,
        max_policy_lag=balance.max_policy_lag,
        num_samplers=components[SAMPLER].count.minimum,
        rollout_transitions=balance.rollout_transitions,
    )


def in_order(components: Mapping[str, ComponentPlan]) -> dict[str, ComponentPlan]:
    """The components of a run in a fixed order, where timing must not change anything.

    The number of samplers is fixed, the actor-learner does not run ahead of its critics, and no process is
    restarted: a new one could not resume at the place in the order where the old one ended.
    """
    fixed = dict(components)
    for role in fixed.keys() & {SAMPLER, *LEARNERS}:
        fixed[role] = replace(fixed[role], max_restarts=0)
    count = fixed[SAMPLER].count.initial
    fixed[SAMPLER] = replace(fixed[SAMPLER], count=Count(count, count, count))
    actor = fixed.get(ACTOR_LEARNER)
    if actor is not None and "slack_updates" in actor.options:
        fixed[ACTOR_LEARNER] = replace(actor, options={**actor.options, "slack_updates": 0})
    return fixed


def _check_order(
    balance: BalancePlan,
    components: Mapping[str, ComponentPlan],
    learning: LearningPlan,
    mistakes: Mistakes,
) -> None:
    """Note what keeps a fixed order from being counted."""
    key = ("balance", "in_order")
    if balance.slack_rollouts != 0:
        mistakes.add(key, "samples in a fixed order leave no slack", "write slack_rollouts = 0")
    planned = schedule_of(balance, in_order(components), learning)
    if planned is None:
        hint = 'write max_policy_lag = 1 and publish_every_updates = "round"'
        mistakes.add(key, "a fixed order needs weights published by count, and a bound of the lag", hint)
    elif not learning.on_policy and not planned.keeps_lag:
        problem = (
            f"{balance.publish_every_updates} updates of {planned.batch_size} at a replay ratio of "
            f"{balance.replay_ratio:g} do not take a round of {planned.round_transitions} transitions"
        )
        hint = 'write publish_every_updates = "round" and max_policy_lag = 1'
        mistakes.add(("balance", "publish_every_updates"), problem, hint)
