"""A sampler as a real process, with its learners, its broker and its source of policies in place."""

from spreeze_zmq.peers import policies
from spreeze_zmq.peers.sampler_acts import publish_policy

CRITIC, ACTOR = "experience.critic_learner", "experience.actor_learner"


def start(peers, until=None):
    """A sampler with every peer in place and a policy of version 0, which may have limits."""
    peers.play("sampler")
    publish_zero(peers, until)
    return peers.start()


def publish_zero(peers, until=None):
    """A policy of version 0, perhaps with limits."""
    spec = peers.plan.environment
    publish_policy(peers, 0, policies.random_policy(spec, policies.heads(spec)[0], seed=1), until)
