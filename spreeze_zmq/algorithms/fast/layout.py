"""What a network keeps for one number of rows: its buffers, and the calls that an update makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from spreeze_zmq.algorithms.fast.layers import Step


@dataclass(frozen=True)
class Pass:
    """Calls for some of the networks on some of the rows: ``e`` and ``b`` of them."""

    rows: slice
    #: ``[e, b, out]``, and the same for its gradient.
    output: torch.Tensor
    output_gradient: torch.Tensor
    forward: list[Step]
    #: Fill the gradients of the parameters, or add to them.
    fill: list[Step]
    add: list[Step]
    #: Fill the layout's parts of the input's gradient; empty where ``forward`` has done so.
    backward: list[Step]


@dataclass(frozen=True)
class Layout:
    """Everything for one number of rows ``B``."""

    input: torch.Tensor  # [B, in]
    output: torch.Tensor  # [E, B, out]
    output_gradient: torch.Tensor  # the same
    input_gradients: torch.Tensor  # [E, B, columns]
    input_gradient: torch.Tensor  # float32 [B, columns], their sum
    add_up: list[Step]  # to it, each times the gradient of its single output
    passes: list[Pass]


def adding(part: torch.Tensor, factor: torch.Tensor | None, total: torch.Tensor, first: bool) -> Step:
    """Of one network's part, times a factor of each row if there is one."""
    if factor is None:
        return partial(total.copy_, part) if first else partial(total.add_, part)
    if first:
        return partial(torch.mul, part, factor, out=total)
    return partial(torch.addcmul, total, part, factor, out=total)
