"""Replays and rounds: the experience that a learner keeps, on its own device, of the rollouts it receives."""

from __future__ import annotations

from spreeze_zmq.replay.prioritized import replay_of
from spreeze_zmq.replay.replays import Batch, ObservationReplay, Replay
from spreeze_zmq.replay.reward_scale import ReturnScale, RewardScale
from spreeze_zmq.replay.ring import MEMORY_SHARE, free_bytes
from spreeze_zmq.replay.rounds import Minibatches, Round, RoundStore

__all__ = [
    "MEMORY_SHARE",
    "Batch",
    "Minibatches",
    "ObservationReplay",
    "Replay",
    "ReturnScale",
    "RewardScale",
    "Round",
    "RoundStore",
    "free_bytes",
    "replay_of",
]
