"""Adam over one flat buffer, each step one native call; torch computes the same on a GPU, without the native
library, and where torch intercepts each operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from spreeze_zmq.nn.native_calls import call, check_shape, code_for

#: Adam's epsilon, as Kingma and Ba 2014 have it.
EPSILON = 1e-8

#: A GPU's multiprocessor steps one piece of the parameters at a time: numbers in a piece, and pieces.
SMALLEST_PIECE, MOST_PIECES = 4096, 144


class Adam:
    """Adam (arXiv 1412.6980, algorithm 1) with decoupled weight decay (arXiv 1711.05101, algorithm 2) over
    one flat buffer.

    Args:
        parameters: float32 ``[P]``, stepped in place.
        gradient: float32 ``[P]``, read at each step and zero afterwards.
        learning_rate: step size.
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.
        weight_decay: a step shrinks the parameters by this times the step size.
        num_weights: number of parameters that decay and whose gradient is scaled down, the first ones; all by
            default.
        max_gradient_norm: longer gradients of these are scaled down to this norm; 0 for never.

    Attributes:
        moving: whether the numbers change while steps are replayed from a recording.
        numbers: ``[6]`` on the parameters' device: learning rate, both betas, epsilon, weight decay and
            largest norm.

    Raises:
        ValueError: ``gradient`` has another size than ``parameters``.
    """

    def __init__(
        self,
        parameters: Tensor,
        gradient: Tensor,
        learning_rate: float,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        num_weights: int | None = None,
        max_gradient_norm: float = 0.0,
    ) -> None:
        check_shape("gradient", gradient, parameters.numel())
        code_for(parameters, gradient)  # compiles the library now if needed, not within the first step
        self._stated = [learning_rate, beta1, beta2, EPSILON, weight_decay, max_gradient_norm]
        # Native code reads doubles; torch's kernel on a GPU reads a float.
        dtype = torch.float64 if parameters.is_cpu else torch.float32
        self.numbers = torch.tensor(self._stated, dtype=dtype, device=parameters.device)
        self.moving = False
        self._num_weights = len(parameters) if num_weights is None else num_weights
        self._parameters, self._gradient = parameters, gradient
        self._moments = {"mean": torch.zeros_like(parameters), "square": torch.zeros_like(parameters)}
        self._steps = torch.zeros((), dtype=torch.float32, device=parameters.device)
        size = max(SMALLEST_PIECE, -(-len(parameters) // MOST_PIECES) // 4 * 4 + 4)
        whole = parameters, gradient, *self._moments.values()
        self._pieces = [list(torch.split(each, size)) for each in whole]

    @property
    def learning_rate(self) -> float:
        """The step size; waits for a device where steps change it."""
        return self.numbers[0].item() if self.moving else self._stated[0]

    def set(self, learning_rate: float, weight_decay: float, max_gradient_norm: float) -> None:
        """Use other numbers from the next step on; unless they are ``moving``, one that is recorded anew."""
        changed = {0: learning_rate, 4: weight_decay, 5: max_gradient_norm}
        for place, number in changed.items():
            if self._stated[place] != number:
                self._stated[place] = number
                self.numbers[place] = number

    def multiply_rate(self, factor: Tensor, low: float, high: float) -> None:
        """Multiply the step size by a factor, 0-d, within bounds; in a recording, too."""
        self.moving = True
        self.numbers[0].mul_(factor).clamp_(low, high)

    @property
    def stated_rate(self) -> float:
        """The step size that was set last, from which :meth:`multiply_rate` goes on."""
        return self._stated[0]

    def restore_rate(self, rate: float, stated: float) -> None:
        """Go on with a step size that :meth:`multiply_rate` had made of a stated one until another is set."""
        self.moving = True
        self._stated[0], self.numbers[0] = stated, rate

    def step(self) -> None:
        """Move the parameters by the gradient."""
        self._steps.add_(1.0)
        tensors = self._parameters, self._gradient, *self._moments.values()
        if code_for(*tensors) is None:
            self._step_in_torch()
            return
        call("adam", self.numbers, self._steps, self._parameters.numel(), self._num_weights, *tensors)

    def _step_in_torch(self) -> None:
        weights, gradient = self._parameters[: self._num_weights], self._gradient[: self._num_weights]
        stated: list[Any] = list(self.numbers) if self.moving else self._stated
        rate, decay, longest = stated[0], *stated[4:]
        if self.moving or longest:
            scale = (longest / (gradient.norm() + 1e-6)).clamp_(max=1.0)
            gradient.mul_(torch.where(longest > 0.0, scale, 1.0) if self.moving else scale)
        if self.moving or decay:
            weights.mul_(1.0 - rate * decay)
        pieces, gradients, means, squares = self._pieces
        torch._fused_adam_(
            pieces,
            gradients,
            means,
            squares,
            [],
            [self._steps] * len(pieces),
            lr=rate,
            beta1=self._stated[1],
            beta2=self._stated[2],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )
        self._gradient.zero_()

    @property
    def moments(self) -> dict[str, Tensor]:
        """Both moments ``[P]`` and the number of steps, 0-d, by name; the memory that steps write to."""
        return {**self._moments, "steps": self._steps}

    def state_dict(self) -> dict[str, Any]:
        """Copies of :attr:`moments`."""
        return {name: tensor.clone() for name, tensor in self.moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, tensor in self.moments.items():
            tensor.copy_(state[name])
