"""How much memory there is for the tables of replays, and the error where that is too little."""

from __future__ import annotations

import psutil
import torch

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.kept_memory import held_bytes
from spreeze_zmq.base.quota import memory_left

#: Share of the free memory that a table may claim.
MEMORY_SHARE = 0.9


def free_bytes(device: torch.device) -> int:
    """Free memory of the device; on a CPU what a container leaves of it, and this process's kept memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available, left = int(psutil.virtual_memory().available), memory_left()
    return (available if left is None else min(available, left)) + held_bytes()


class NoRoom(InputError):
    """A table does not fit in the memory that is free.

    Args:
        lack: that, in words, with both sizes.
        most: transitions that would fit.
    """

    def __init__(self, lack: str, most: int) -> None:
        super().__init__(f"{lack}: lower algorithm.replay_capacity to at most {most:,}")
        self.lack = lack
