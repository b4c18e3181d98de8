"""Critic-learner: trains the critics on rollouts and publishes them.

Where the algorithm has no actor-learner, the critics define the policy, and this process publishes it.
"""

import sys

from spreeze_zmq.component import Component, run
from spreeze_zmq.learner import Learner, learn


def main(component: Component) -> None:
    """Learn from a replay or, on-policy, from rounds of rollouts."""
    learn(component, Learner(component))


if __name__ == "__main__":
    sys.exit(run("critic_learner", main))
