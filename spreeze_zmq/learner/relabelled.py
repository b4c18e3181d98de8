"""What a learner needs to relabel episodes: the algorithm's hook, and the goals of the environment."""

from __future__ import annotations

import logging

from spreeze_zmq.algorithms.half import AutogradHalf
from spreeze_zmq.algorithms.relabelled import checked, goals_of
from spreeze_zmq.component import Component
from spreeze_zmq.envs.goals import LACK, GoalRewards, is_goal_dict
from spreeze_zmq.plan.plan import Plan
from spreeze_zmq.replay import Relabelling

log = logging.getLogger("spreeze")


def relabelling(component: Component, half: AutogradHalf) -> Relabelling:
    """How the replay of a learner relabels episodes. A learner that keeps rewards makes one environment, for
    its ``compute_reward``; one that keeps observations alone needs none.

    Raises:
        InvalidEnvironment: it cannot be made, or its ``compute_reward`` fails.
    """
    plan, algorithm = component.plan, half.algorithm
    rewards = None
    keeps_rewards = "reward" in type(algorithm).fields_of(half.part)
    if keeps_rewards and is_goal_dict(component.environment.obs_parts) and LACK not in plan.tried:
        rewards = _rewards(component, plan)
    goals = goals_of(component.environment, rewards)
    return Relabelling(checked(algorithm), goals, plan.run.seed)


def _rewards(component: Component, plan: Plan) -> GoalRewards:
    from spreeze_zmq.envs.in_process import choose  # imports Gymnasium, which other learners do not need

    env = choose(plan.environment.id, plan.environment.kwargs).make_one(0)
    component.at_end.append(env.close)
    env.reset(seed=plan.run.seed)
    rewards = GoalRewards(env, plan.environment.id)
    how = "many goals at once" if rewards.in_batches else "one goal at a time"
    log.info("episodes are kept once more in hindsight; compute_reward takes %s", how)
    return rewards
