"""What the learner processes share: receiving rollouts, publishing, checkpoints, and the loop."""

from spreeze_zmq.learner.arithmetic import flops_per_transition
from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.lag import CollectionLimits, Staleness
from spreeze_zmq.learner.learner import Learner, learn
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.memory import keep
from spreeze_zmq.learner.policy_outlet import PolicyOutlet
from spreeze_zmq.learner.publication import Outbox
from spreeze_zmq.learner.rounds import RoundLearner
from spreeze_zmq.learner.setup import algorithm_of

__all__ = [
    "CollectionLimits",
    "Intake",
    "Learner",
    "LiveBatch",
    "Outbox",
    "PolicyOutlet",
    "RoundLearner",
    "Staleness",
    "algorithm_of",
    "flops_per_transition",
    "keep",
    "learn",
]
