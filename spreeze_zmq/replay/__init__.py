"""Replays and rounds: the experience that a learner keeps, on its own device, of the rollouts it receives."""

from __future__ import annotations

from spreeze_zmq.replay.batches import Batch, Mixture
from spreeze_zmq.replay.episodes import Episode, Transitions
from spreeze_zmq.replay.hindsight import Goals, in_hindsight
from spreeze_zmq.replay.relabelling import Relabelling, misfit
from spreeze_zmq.replay.replays import ObservationReplay, Replay, further_fields
from spreeze_zmq.replay.reward_scale import ReturnScale, RewardScale
from spreeze_zmq.replay.room import MEMORY_SHARE, NoRoom, free_bytes
from spreeze_zmq.replay.rounds import Minibatches, Round, RoundStore
from spreeze_zmq.replay.sequences import SequenceReplay, replay_of

__all__ = [
    "MEMORY_SHARE",
    "Batch",
    "Episode",
    "Goals",
    "Minibatches",
    "Mixture",
    "NoRoom",
    "ObservationReplay",
    "Relabelling",
    "Replay",
    "ReturnScale",
    "RewardScale",
    "Round",
    "RoundStore",
    "SequenceReplay",
    "Transitions",
    "free_bytes",
    "further_fields",
    "in_hindsight",
    "misfit",
    "replay_of",
]
