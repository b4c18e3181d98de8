"""Shows an agent in a window or writes a video of it."""

from spreeze_zmq.video.recorder import Recording, record
from spreeze_zmq.video.window import show

__all__ = ["Recording", "record", "show"]
