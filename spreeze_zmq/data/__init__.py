"""Data that a run has not sampled itself: Minari datasets, read as rollouts and written from played episodes.

Importing this package imports no Minari: a run without data does without it.
"""

from __future__ import annotations

from spreeze_zmq.data.dataset import Dataset, find
from spreeze_zmq.data.reading import Outside, rollouts_of
from spreeze_zmq.data.writing import check_name, write

__all__ = ["Dataset", "Outside", "check_name", "find", "rollouts_of", "write"]
