"""``[balance]``: from free to lock-step; each mode is a set of numbers for the same code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.balance import updates_per_round
from spreeze_zmq.plan.parts import BalancePlan, LearningPlan
from spreeze_zmq.plan.processes import ComponentPlan, Count
from spreeze_zmq.plan.roles import ACTOR_LEARNER, LEARNERS, SAMPLER
from spreeze_zmq.plan.topology.tables import Mistakes

#: The keys that the mode decides where the topology leaves them at "auto", and their values in each mode.
_KEYS = ("max_policy_lag", "slack_rollouts", "publish_every_updates", "in_order")
MODES: dict[str, dict[str, Any]] = {
    "free": dict(zip(_KEYS, (None, 2, 0, False), strict=True)),
    "bounded": dict(zip(_KEYS, (20, 2, "round", False), strict=True)),
    "lockstep": dict(zip(_KEYS, (1, 0, "round", True), strict=True)),
}
#: ``max_policy_lag`` of on-policy algorithms: rounds that may be collected while one is trained on.
ON_POLICY_LAG = {"free": 1, "bounded": 1, "lockstep": 0}


def keeps_order(written: Mapping[str, Any]) -> bool:
    """Whether a table ``[balance]`` asks for a fixed order."""
    found = written["in_order"]
    return bool(MODES[written["mode"]]["in_order"] if found == "auto" else found)


def resolve_balance(
    written: Mapping[str, Any],
    components: dict[str, ComponentPlan],
    learning: LearningPlan,
    mistakes: Mistakes,
) -> tuple[BalancePlan, dict[str, ComponentPlan]]:
    """The plan of the balance, and the components with the changes that it needs.

    Args:
        written: ``[balance]`` as checked, ``"auto"`` where the mode decides.
        components: by role.
        learning: the facts about the algorithm.
        mistakes: takes numbers that contradict each other.
    """
    mode = dict(MODES[written["mode"]])
    if learning.on_policy:
        mode |= {"max_policy_lag": ON_POLICY_LAG[written["mode"]], "publish_every_updates": "round"}
    values = {key: mode[key] if value == "auto" and key in mode else value for key, value in written.items()}
    sampler = components[SAMPLER]
    rollout = int(sampler.options.get("rollout_steps", 0)) * int(sampler.options.get("envs", 0))
    if learning.on_policy:
        _resolve_rounds(values, sampler.count.initial, learning, rollout, mistakes)
        components = with_fixed_samplers(components)
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
        round_transitions = max(1, sampler.count.initial) * rollout
        every = updates_per_round(values["replay_ratio"], learning.batch_size, round_transitions)
        values["publish_every_updates"] = every
    values["pin"] = {"auto": "auto", True: "always", False: "never"}[values["pin"]]
    balance = BalancePlan(**values, rollout_transitions=rollout)
    if balance.in_order and not mistakes.found:
        components = _in_order(components)
        _check_order(balance, components, learning, mistakes)
    return balance, components


def _resolve_rounds(
    values: dict[str, Any], num_samplers: int, learning: LearningPlan, rollout: int, mistakes: Mistakes
) -> None:
    """Set ``values`` for an on-policy algorithm, whose rounds are one rollout of each sampler."""
    if values["replay_ratio"] != BalancePlan.replay_ratio:
        problem = "an on-policy algorithm trains on each transition for its number of epochs and no more"
        mistakes.add(("balance", "replay_ratio"), problem, "leave it out, and set algorithm.epochs")
    if values["max_policy_lag"] is None:
        problem = "an on-policy algorithm needs a bound of the lag"
        mistakes.add(("balance", "max_policy_lag"), problem, "write a number of rounds; 0 waits for each")
        values["max_policy_lag"] = ON_POLICY_LAG[values["mode"]]
    if not rollout:
        problem = "rounds need to know the sampler's rollout_steps and envs"
        mistakes.add(("components", SAMPLER), problem, "give it these options")
    if values["publish_every_updates"] not in (0, "round"):
        problem = "an on-policy algorithm has a new policy after the updates of a round, and no other"
        hint = "leave it out, or write 0 to publish by the clock"
        mistakes.add(("balance", "publish_every_updates"), problem, hint)
    values["replay_ratio"] = float(learning.epochs)
    if values["publish_every_updates"]:
        values["publish_every_updates"] = updates_of_a_round(num_samplers * rollout, learning)


def updates_of_a_round(transitions: int, learning: LearningPlan) -> int:
    """Updates of an on-policy algorithm on one round."""
    return learning.epochs * -(-max(1, transitions) // learning.batch_size)


def with_fixed_samplers(components: Mapping[str, ComponentPlan]) -> dict[str, ComponentPlan]:
    """The components with a number of samplers that stays as it is at the start."""
    count = components[SAMPLER].count.initial
    return {**components, SAMPLER: replace(components[SAMPLER], count=Count(count, count, count))}


def _in_order(components: Mapping[str, ComponentPlan]) -> dict[str, ComponentPlan]:
    """The components of a run whose result must not depend on timing.

    The number of samplers is fixed, the actor-learner does not run ahead of its critics, and no process is
    restarted: a new one could not resume at the place in the order where the old one ended.
    """
    fixed = with_fixed_samplers(components)
    for role in fixed.keys() & {SAMPLER, *LEARNERS}:
        fixed[role] = replace(fixed[role], max_restarts=0)
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
    """Note the numbers that make a fixed order impossible."""
    key = ("balance", "in_order")
    if balance.slack_rollouts != 0:
        mistakes.add(key, "samples in a fixed order leave no slack", "write slack_rollouts = 0")
    planned = balance.schedule(components, learning)
    if planned is None and not components[SAMPLER].count.maximum and balance.publish_every_updates:
        return  # nobody samples: the learners alone follow each other
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
