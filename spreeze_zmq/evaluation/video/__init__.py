"""Shows an agent in a window or writes a video of it."""

from spreeze_zmq.evaluation.video.recorder import Recording, record
from spreeze_zmq.evaluation.video.window import show

__all__ = ["Recording", "record", "show"]
