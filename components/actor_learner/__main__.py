"""Actor-learner: trains the policy against the newest critics and publishes it."""

import sys

from spreeze_zmq.component import Component, run
from spreeze_zmq.learner import Learner, learn


def main(component: Component) -> None:
    """Learn from a replay or, on-policy, from rounds of rollouts."""
    learn(component, Learner(component))


if __name__ == "__main__":
    sys.exit(run("actor_learner", main))
