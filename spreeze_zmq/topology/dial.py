"""The dial from free to lock-step: a mode is a name for numbers of the same code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreeze_zmq.balance import Schedule, updates_per_round
from spreeze_zmq.plan.plan import BalancePlan, ComponentPlan, Count
from spreeze_zmq.topology.mistakes import Mistakes

#: What each mode stands for; a key that the topology writes itself has what it says.
MODES: dict[str, dict[str, Any]] = {
    "free": {
        "max_policy_lag": "none",
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


def expand(written: Mapping[str, Any]) -> dict[str, Any]:
    """``[balance]`` with every ``"auto"`` replaced by what the mode stands for."""
    mode = MODES[written["mode"]]
    return {key: mode[key] if value == "auto" and key in mode else value for key, value in written.items()}


def settle(
    written: Mapping[str, Any],
    components: dict[str, ComponentPlan],
    algorithm: Mapping[str, Any],
    mistakes: Mistakes,
) -> tuple[BalancePlan, dict[str, ComponentPlan]]:
    """The numbers of the balance, and the components as they need them.

    Args:
        written: ``[balance]`` as checked, ``"auto"`` where the mode decides.
        components: by role.
        algorithm: its options.
        mistakes: where to note numbers that do not go together.
    """
    values = expand(written)
    sampler = components["sampler"]
    rollout = int(sampler.options.get("rollout_steps", 0)) * int(sampler.options.get("envs", 0))
    batch_size: Any = algorithm.get("batch_size")
    if values["publish_every_updates"] and batch_size == "auto":
        problem = (
            '"auto" is measured, and can be another number in the next run; publishing by count, as in the '
            'modes "bounded" and "lockstep", needs a fixed one'
        )
        mistakes.add(("algorithm", "batch_size"), problem, 'write a number, or balance.mode = "free"')
        values["publish_every_updates"] = 0
    if values["publish_every_updates"] and not (rollout and isinstance(batch_size, int)):
        problem = "counting needs a batch_size, and the sampler's rollout_steps and envs"
        mistakes.add(("balance", "publish_every_updates"), problem, "write 0 to publish by the clock")
        values["publish_every_updates"] = 0
    if values["publish_every_updates"] == "round":
        round_transitions = sampler.count.initial * rollout
        effective = batch_size * components["critic_learner"].count.initial
        every = updates_per_round(values["replay_ratio"], effective, round_transitions)
        values["publish_every_updates"] = every
    if values["publish_every_updates"]:  # what is counted is counted in rollouts of one size
        components = {**components, "sampler": replace(sampler, ranges={})}
    if values["max_policy_lag"] == "none":
        values["max_policy_lag"] = None
    values["pin"] = {"auto": "auto", True: "always", False: "never"}[values["pin"]]
    balance = BalancePlan(**values, rollout_transitions=rollout)
    if balance.in_order and not mistakes.found:
        _check_order(balance, components, algorithm, mistakes)
        components = in_order(components)
    return balance, components


def schedule(
    balance: BalancePlan, components: Mapping[str, ComponentPlan], algorithm: Mapping[str, Any]
) -> Schedule | None:
    """The counted course of a run; None for one that publishes by the clock or bounds no lag.

    Shares are made for the fewest samplers that the topology allows, so that those can always go on alone.
    """
    if not balance.publish_every_updates or balance.max_policy_lag is None:
        return None
    return Schedule(
        replay_ratio=balance.replay_ratio,
        batch_size=algorithm["batch_size"] * components["critic_learner"].count.initial,
        learning_starts=algorithm.get("learning_starts", 1),
        publish_every=balance.publish_every_updates,
        max_policy_lag=balance.max_policy_lag,
        num_samplers=components["sampler"].count.minimum,
        rollout_transitions=balance.rollout_transitions,
    )


def in_order(components: Mapping[str, ComponentPlan]) -> dict[str, ComponentPlan]:
    """Components that nothing but counts can move.

    The number of samplers stays as it is, the actor does not run ahead of the critics that it has, and nobody
    is started again: a second life cannot go on at the place in the order where the first one ended.
    """
    settled = dict(components)
    for role in ("sampler", "critic_learner", "actor_learner"):
        settled[role] = replace(settled[role], max_restarts=0)
    count = settled["sampler"].count.initial
    settled["sampler"] = replace(settled["sampler"], count=Count(count, count, count))
    actor = settled["actor_learner"]
    if "slack_updates" in actor.options:
        settled["actor_learner"] = replace(actor, options={**actor.options, "slack_updates": 0})
    return settled


def _check_order(
    balance: BalancePlan,
    components: Mapping[str, ComponentPlan],
    algorithm: Mapping[str, Any],
    mistakes: Mistakes,
) -> None:
    """Taking everything in order needs numbers by which everything is counted."""
    key = ("balance", "in_order")
    if balance.slack_rollouts != 0:
        mistakes.add(key, "samples in a fixed order leave no slack", "write slack_rollouts = 0")
    planned = schedule(balance, in_order(components), algorithm)
    if planned is None:
        hint = 'write max_policy_lag = 1 and publish_every_updates = "round"'
        mistakes.add(key, "a fixed order needs weights published by count, and a bound of the lag", hint)
    elif not planned.keeps_lag:
        problem = (
            f"{balance.publish_every_updates} updates of {planned.batch_size} at a replay ratio of "
            f"{balance.replay_ratio:g} do not take a round of {planned.round_transitions} transitions"
        )
        hint = 'write publish_every_updates = "round" and max_policy_lag = 1'
        mistakes.add(("balance", "publish_every_updates"), problem, hint)
