"""Acting with a published policy, from a message or a file, in NumPy alone.

torch is imported only for a network with a convolution.
"""

from __future__ import annotations

from spreeze_zmq.policy.actor import places, register_class_loader
from spreeze_zmq.policy.file import read_file
from spreeze_zmq.policy.legal import MaskRows
from spreeze_zmq.policy.observations import FrameStack, Played, played, with_noise, without_noise
from spreeze_zmq.policy.policy import Policy, usable

__all__ = [
    "FrameStack",
    "MaskRows",
    "Played",
    "Policy",
    "places",
    "played",
    "read_file",
    "register_class_loader",
    "usable",
    "with_noise",
    "without_noise",
]
