"""Shows an agent in a window or writes a video of it."""

from spreeze_zmq.evaluation.video.recorder import Video, record
from spreeze_zmq.evaluation.video.window import show

__all__ = ["Video", "record", "show"]
