"""Which number format the products of an update run in, by what the device can do."""

from __future__ import annotations

import torch

from spreeze_zmq.errors import InputError
from spreeze_zmq.native.library import cpu_flags

#: Flags of /proc/cpuinfo that stand for native bf16 products; without one torch emulates them, many times
#: slower.
BF16_FLAGS = ("amx_bf16", "avx512_bf16")


def has_bf16(device: torch.device, flags: frozenset[str] | None = None) -> bool:
    """Whether ``device`` multiplies bf16 in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool((cpu_flags() if flags is None else flags).intersection(BF16_FLAGS))


def allow_tf32(precision: str, device: torch.device) -> None:
    """Have float32 products of this process rounded to TF32 on the way into a GPU's tensor cores, or not.

    Raises:
        InputError: there are no tensor cores.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    elif precision == "tf32":
        raise InputError(f'precision = "tf32": {device} has no TF32, a GPU has; use "fp32" or "auto"')


def compute_dtype(precision: str, device: torch.device, flags: frozenset[str] | None = None) -> torch.dtype:
    """The format of weights and activations inside an update; parameters and optimiser stay float32.

    Raises:
        InputError: bf16 was asked for where the device would only emulate it.
    """
    if precision in ("fp32", "tf32"):
        return torch.float32
    if has_bf16(device, flags):
        return torch.bfloat16
    if precision == "bf16":
        raise InputError(
            f'precision = "bf16": {device} has none of {" or ".join(BF16_FLAGS)}, it would emulate bf16; '
            'use "fp32" or "auto"'
        )
    return torch.float32


def dtypes_of(precision: str, device: torch.device, auto_bf16: bool) -> tuple[torch.dtype, ...]:
    """The formats that an update may run its products in; of several the fastest is taken.

    Args:
        precision: the algorithm's option.
        device: where the update runs.
        auto_bf16: whether ``"auto"`` may take bf16.

    Raises:
        InputError: as :func:`compute_dtype`.
    """
    if precision != "auto":
        return (compute_dtype(precision, device),)
    if not auto_bf16 or not has_bf16(device):
        return (torch.float32,)
    return (torch.bfloat16,) if device.type == "cuda" else (torch.float32, torch.bfloat16)
