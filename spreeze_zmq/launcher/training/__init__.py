"""Training from Python: ``train`` starts the launcher as another process and returns the finished run."""

from spreeze_zmq.launcher.training.entry import Run, train

__all__ = ["Run", "train"]
