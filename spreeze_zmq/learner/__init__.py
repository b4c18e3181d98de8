"""The learners: they receive rollouts, train one half of an algorithm, publish its weights and save it."""

from spreeze_zmq.learner.arithmetic import flops_per_transition
from spreeze_zmq.learner.learner import Learner, learn
from spreeze_zmq.learner.setup import algorithm_of

__all__ = ["Learner", "algorithm_of", "flops_per_transition", "learn"]
