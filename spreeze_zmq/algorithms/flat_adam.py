"""Adam over one flat buffer, in one fused call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class FlatAdam:
    """Adam (Kingma and Ba 2014, arXiv 1412.6980, algorithm 1): first beta 0.9, epsilon 1e-8.

    torch.optim.Adam runs the same kernel; its bookkeeping for lists of parameters costs as much again as the
    kernel for the networks of this field.

    Args:
        parameters: flat float32 ``[P]``, stepped in place.
        gradient: flat float32 ``[P]``, read at each step.
        learning_rate: step size.
        beta2: how much of the mean squared gradient a step keeps.
        weight_decay: share of the parameters times the step size that a step takes away, apart from the
            gradient (Loshchilov and Hutter 2017, arXiv 1711.05101, algorithm 2).
        num_decaying: the first so many parameters decay; all by default.
        max_gradient_norm: longer gradients are shortened to it; 0 for never.
    """

    def __init__(
        self,
        parameters: torch.Tensor,
        gradient: torch.Tensor,
        learning_rate: float,
        *,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        num_decaying: int | None = None,
        max_gradient_norm: float = 0.0,
    ):
        self.learning_rate = learning_rate
        self._beta2 = beta2
        self._weight_decay = weight_decay
        self._decaying = parameters[:num_decaying]
        self._max_gradient_norm = max_gradient_norm
        self._parameters = [parameters]
        self._gradient = [gradient]
        self._mean = [torch.zeros_like(parameters)]
        self._square = [torch.zeros_like(parameters)]
        self._steps = [torch.zeros((), device=parameters.device)]
        self._one = torch.ones((), device=parameters.device)

    def step(self) -> None:
        """Move the parameters by the gradient."""
        if self._weight_decay:
            self._decaying.mul_(1.0 - self.learning_rate * self._weight_decay)
        if self._max_gradient_norm:
            norm = self._gradient[0].norm()
            self._gradient[0].mul_((self._max_gradient_norm / (norm + 1e-6)).clamp_(max=1.0))
        torch.add(self._steps[0], self._one, out=self._steps[0])
        torch._fused_adam_(
            self._parameters,
            self._gradient,
            self._mean,
            self._square,
            [],
            self._steps,
            lr=self.learning_rate,
            beta1=0.9,
            beta2=self._beta2,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """Copies of both moments and the number of steps."""
        return {
            "mean": self._mean[0].clone(),
            "square": self._square[0].clone(),
            "steps": self._steps[0].clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self._mean[0].copy_(state["mean"])
        self._square[0].copy_(state["square"])
        self._steps[0].copy_(state["steps"])
