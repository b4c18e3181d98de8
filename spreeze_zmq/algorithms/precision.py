"""Which number format the products of an update run in, by what the device can do."""

from __future__ import annotations

import torch

from spreeze_zmq.base.errors import InputError
from spreeze_zmq.base.machine import cpu_flags

#: Flags of /proc/cpuinfo for bf16 products in hardware; without one torch emulates them many times slower.
BF16_FLAGS = ("amx_bf16", "avx512_bf16")


def has_bf16(device: torch.device, flags: frozenset[str] | None = None) -> bool:
    """Whether ``device`` multiplies bf16 in hardware; ``flags`` are those of the CPU, by default read now."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool((cpu_flags() if flags is None else flags).intersection(BF16_FLAGS))


def allow_tf32(precision: str, device: torch.device) -> None:
    """Set whether this process rounds the factors of float32 products to TF32 for a GPU's tensor cores.

    Raises:
        InputError: TF32 is wanted on a device without tensor cores.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    elif precision == "tf32":
        raise InputError(f'precision = "tf32": {device} has no TF32, a GPU has; use "fp32" or "auto"')


def dtypes_of(
    precision: str, device: torch.device, auto_bf16: bool, flags: frozenset[str] | None = None
) -> tuple[torch.dtype, ...]:
    """The formats that the products of an update may run in, of which the fastest is taken. Parameters and
    optimiser stay float32.

    Args:
        precision: the algorithm's option.
        device: where the update runs.
        auto_bf16: whether ``"auto"`` may take bf16.
        flags: of the CPU, by default read now.

    Raises:
        InputError: bf16 is wanted on a device that would only emulate it.
    """
    if precision == "bf16":
        if has_bf16(device, flags):
            return (torch.bfloat16,)
        raise InputError(
            f'precision = "bf16": {device} has none of {" or ".join(BF16_FLAGS)}, it would emulate bf16; '
            'use "fp32" or "auto"'
        )
    if precision == "auto" and auto_bf16 and has_bf16(device, flags):
        return (torch.bfloat16,) if device.type == "cuda" else (torch.float32, torch.bfloat16)
    return (torch.float32,)
