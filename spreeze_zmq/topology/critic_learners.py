"""Checks that the rest of a topology allows several critic-learners."""

from __future__ import annotations

from collections.abc import Mapping

from spreeze_zmq.plan.plan import BalancePlan, ChannelPlan, ComponentPlan
from spreeze_zmq.plan.roles import CRITIC_LEARNER
from spreeze_zmq.topology import resolve
from spreeze_zmq.topology.mistakes import Mistakes

_COUNT = ("components", CRITIC_LEARNER, "count")


def check_critic_learners(
    components: Mapping[str, ComponentPlan],
    channels: Mapping[str, ChannelPlan],
    balance: BalancePlan,
    mistakes: Mistakes,
) -> None:
    """Note everything that needs a single critic-learner where there are several."""
    count = components[CRITIC_LEARNER].count.initial
    if count == 1:
        return
    if balance.in_order or (balance.publish_every_updates and balance.max_policy_lag is not None):
        _check_balance(count, balance, mistakes)
    for name, channel in channels.items():
        if (
            channel.binds == CRITIC_LEARNER
            and channel.pattern == "push_pull"
            and channel.endpoint is not None
        ):
            problem = f"one endpoint for {count} critic_learners, each of which binds one of its own"
            mistakes.add(("channels", name, "endpoint"), problem, "leave it out, or write count = 1")
    _check_devices(count, components[CRITIC_LEARNER].options.get("device", "cpu"), mistakes)


def _check_balance(count: int, balance: BalancePlan, mistakes: Mistakes) -> None:
    """Counting needs one critic-learner that sees all of every stream."""
    if balance.in_order:
        problem = f"a fixed order of samples needs one critic_learner, got {count}"
    else:
        problem = f"a bound of the lag kept by count needs one critic_learner, got {count}"
    free = 'write balance.mode = "free", with max_policy_lag if old samples are to be dropped, or count = 1'
    mistakes.add(_COUNT, problem, free)


def _check_devices(count: int, device: str, mistakes: Mistakes) -> None:
    last = resolve.device_of(device, count - 1)
    problem = resolve.device_problem(last, resolve.num_cuda_devices(), resolve.torch_has_cuda())
    if problem:
        each = f"{count} critic_learners take a GPU each, from {device} on: {problem}"
        mistakes.add(_COUNT, each, 'write components.critic_learner.device = "cpu", or fewer of them')
