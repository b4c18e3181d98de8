"""Actor-learner: trains the policy against the newest critics and publishes it."""

import sys

from spreeze_zmq.component import Component, run
from spreeze_zmq.learner import ActorLearner, RoundLearner, learn


def main(component: Component) -> None:
    """Learn from a replay or, on-policy, from rounds of rollouts."""
    learner = RoundLearner if component.plan.learning.on_policy else ActorLearner
    learn(component, learner(component))


if __name__ == "__main__":
    sys.exit(run("actor_learner", main))
