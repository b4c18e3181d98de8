"""The random generators of a device, and their states in checkpoints."""

from __future__ import annotations

import logging
from typing import Any

import torch

log = logging.getLogger("spreeze")


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that torch draws from on a device, a CPU or a GPU, where none is named."""
    if device.type != "cuda":
        return torch.default_generator
    cuda: Any = torch.cuda
    found: torch.Generator = cuda.default_generators[
        cuda.current_device() if device.index is None else device.index
    ]
    return found


def draw_on(generator: torch.Generator, state: torch.Tensor) -> None:
    """Let a generator go on from a saved ``state``, uint8. The states of a GPU and of a CPU differ in size:
    from one of the other kind nothing can go on, and the generator stays as its seed made it.
    """
    if state.numel() == generator.get_state().numel():
        generator.set_state(state.cpu())
    else:
        log.info("random numbers start from the seed: the checkpoint is of another kind of device")
