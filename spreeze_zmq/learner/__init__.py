"""What the two learner processes share: taking rollouts in, publishing, saving and restoring, and the loop
that does these in turn.
"""

from spreeze_zmq.learner.intake import Intake
from spreeze_zmq.learner.live_batch import LiveBatch
from spreeze_zmq.learner.loop import Learner, learn
from spreeze_zmq.learner.publication import Cadence, Outbox, Record
from spreeze_zmq.learner.ranks import Ranks, checksum
from spreeze_zmq.learner.setup import algorithm_of, cadence_of, settle_device
from spreeze_zmq.learner.vault import Vault

__all__ = [
    "Cadence",
    "Intake",
    "Learner",
    "LiveBatch",
    "Outbox",
    "Ranks",
    "Record",
    "Vault",
    "algorithm_of",
    "cadence_of",
    "checksum",
    "learn",
    "settle_device",
]
