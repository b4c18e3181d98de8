"""A process's device, which torch has to be able to compute on."""

from __future__ import annotations

import re

import torch

from spreeze_zmq.base.errors import InputError

#: What CUDA says where the next try may succeed.
PASSING = "out of memory|busy or unavailable"


def claim(device: str, option: str) -> None:
    """Make a GPU this process's own, after a small sum on it; a CPU needs nothing.

    A driver that is too old for torch, and a GPU that its kernels are not made for, are found there alone.

    Args:
        device: as in ``components.ROLE.device``.
        option: what the user writes to have another one.

    Raises:
        InputError: torch cannot use the device; its reason in one line.
        RuntimeError: it cannot now, as another program has it or its memory; later it may.
    """
    if not device.startswith("cuda"):
        return
    try:
        torch.ones(1, device=device).add(1.0).item()
        torch.cuda.set_device(device)
    except (RuntimeError, AssertionError) as error:  # a torch without CUDA asserts
        why = str(error).strip().split("\n")[0]
        if re.search(PASSING, why):
            raise
        raise InputError(
            f'{option}: torch {torch.__version__} cannot use {device}: {why}; write "cpu" there, or take '
            "a driver and a torch that fit this GPU"
        ) from None
