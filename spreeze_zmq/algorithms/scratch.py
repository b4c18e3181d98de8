"""Buffers that are kept from one update to the next."""

from __future__ import annotations

import torch


class Scratch:
    """A buffer that is made anew only when another shape is asked for.

    A fresh 256 KB tensor at each call would be mapped and unmapped by the C library, page faults included.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._buffer = torch.empty(0, dtype=dtype, device=device)

    def __call__(self, *shape: int) -> torch.Tensor:
        """An uninitialised tensor of ``shape``; the same memory as before where the shape is the same."""
        if self._buffer.shape != shape:
            self._buffer = torch.empty(shape, dtype=self._buffer.dtype, device=self._buffer.device)
        return self._buffer
