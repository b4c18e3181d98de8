"""The agent at work in a window or a video file."""

from spreeze_zmq.video.recorder import Recording, record
from spreeze_zmq.video.window import show

__all__ = ["Recording", "record", "show"]
