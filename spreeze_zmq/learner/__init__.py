"""What the two learner processes share: taking rollouts in, publishing, saving and restoring, and the loop
that does these in turn.
"""

from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.loop import Learner, learn
from spreeze_zmq.learner.policy_outlet import OwnPolicies, PolicyOutlet
from spreeze_zmq.learner.publication import Cadence, Outbox, Record
from spreeze_zmq.learner.ranks import Ranks
from spreeze_zmq.learner.rounds import RoundLearner
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, settle_device
from spreeze_zmq.learner.staleness import KnownPolicies, Staleness
from spreeze_zmq.learner.updates import seed_of, share_of, updates_of
from spreeze_zmq.learner.vault import Vault
from spreeze_zmq.learner.versions import Versions

__all__ = [
    "Cadence",
    "Intake",
    "KnownPolicies",
    "Learner",
    "LiveBatch",
    "Outbox",
    "OwnPolicies",
    "PolicyOutlet",
    "Ranks",
    "Record",
    "RoundLearner",
    "Staleness",
    "Vault",
    "Versions",
    "algorithm_of",
    "cadence_of",
    "learn",
    "seed_of",
    "settle_device",
    "share_of",
    "updates_of",
]
