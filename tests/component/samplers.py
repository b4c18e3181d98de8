"""A sampler as a real process, with its learners, its broker and its source of policies in place."""

import time
from pathlib import Path

from spreeze_zmq.peers import policies
from spreeze_zmq.peers.sampler_acts import publish_policy
from tests.unit.envs.own_environments import Count

CRITIC, ACTOR = "experience.critic_learner", "experience.actor_learner"


class Robot(Count):
    """A step takes a tenth of a second; a file is there while it is open."""

    def __init__(self, held, fails_at=-1):
        super().__init__(length=7 if fails_at < 0 else 50, fails_at=fails_at)
        self.held = Path(held)
        self.held.touch()

    def step(self, action):
        """Count, slowly."""
        time.sleep(0.1)
        return super().step(action)

    def close(self):
        """Let it go."""
        self.held.unlink()


def start(peers, until=None):
    """A sampler with every peer in place and a policy of version 0, which may have limits."""
    peers.play("sampler")
    publish_zero(peers, until)
    return peers.start()


def publish_zero(peers, until=None):
    """A policy of version 0, perhaps with limits."""
    spec = peers.plan.environment
    publish_policy(peers, 0, policies.random_policy(spec, policies.heads(spec)[0], seed=1), until)
