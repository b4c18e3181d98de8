"""The learners: they receive rollouts, train one half of an algorithm, publish its weights and save it."""

from spreeze_zmq.learner.actor_learner import ActorLearner
from spreeze_zmq.learner.arithmetic import flops_per_transition
from spreeze_zmq.learner.critic_learner import CriticLearner
from spreeze_zmq.learner.learner import Learner, learn
from spreeze_zmq.learner.round_learner import RoundLearner
from spreeze_zmq.learner.setup import algorithm_of

__all__ = [
    "ActorLearner",
    "CriticLearner",
    "Learner",
    "RoundLearner",
    "algorithm_of",
    "flops_per_transition",
    "learn",
]
