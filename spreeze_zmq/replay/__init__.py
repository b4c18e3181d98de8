"""The replay: what a learner keeps, on its own device, of the rollouts that arrive."""

from __future__ import annotations

from spreeze_zmq.replay.replays import Batch, ObservationReplay, Replay
from spreeze_zmq.replay.returns import n_step_returns
from spreeze_zmq.replay.ring import Column, Ring

__all__ = ["Batch", "Column", "ObservationReplay", "Replay", "Ring", "n_step_returns"]
