"""Networks in one flat float32 buffer, and Adam over it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq import nn
from spreeze_zmq.device import Staging
from spreeze_zmq.errors import WireError


class FlatNetworks:
    """Modules whose parameters and buffers become views of one buffer.

    Order: the parameters of the module called ``first``, those of the others, single numbers among these at
    the end, then all float buffers (such as the running means of a batch normalisation), which travel and are
    not trained.

    Args:
        modules: by name, on their device already.
        first: the name of the module that comes first, where it is among them.
        trained: whether gradients are kept, as views of ``gradient``.

    Attributes:
        flat: ``[P + Q]``, parameters and buffers.
        trained: ``[P]``, the parameters; a view of ``flat``.
        gradient: ``[P]``; empty where nothing is trained.
        num_trained: ``P``.
        num_weights: how many of them, the first, are weights that may decay; single numbers follow.
        num_acting: parameters of the module called ``first``; 0 where it is not among them.
    """

    def __init__(self, modules: Mapping[str, torch.nn.Module], first: str, *, trained: bool) -> None:
        acting = list(modules[first].parameters()) if first in modules else []
        others = [module for name, module in modules.items() if name != first]
        parameters = [p for module in others for p in module.parameters()]
        # Single numbers, such as a temperature, come last: weight decay leaves them alone.
        parameters = [*acting, *sorted(parameters, key=lambda parameter: parameter.dim() == 0)]
        buffers = [b for module in modules.values() for b in module.buffers() if b.is_floating_point()]
        device = parameters[0].device if parameters else torch.device("cpu")
        pieces = [tensor.detach().reshape(-1).float() for tensor in (*parameters, *buffers)]
        self.flat = torch.cat(pieces) if pieces else torch.empty(0, device=device)
        self._staging = Staging(device)
        self.num_trained = sum(p.numel() for p in parameters)
        self.num_weights = sum(p.numel() for p in parameters if p.dim() > 0)
        self.num_acting = sum(p.numel() for p in acting)
        self.trained = self.flat[: self.num_trained]
        self.gradient = torch.zeros_like(self.trained) if trained else torch.empty(0, device=device)
        offset = 0
        for tensor in (*parameters, *buffers):
            place = slice(offset, offset + tensor.numel())
            shape, offset = tensor.shape, place.stop
            tensor.data = self.flat[place].view(shape)
            if isinstance(tensor, torch.nn.Parameter):
                tensor.requires_grad_(trained)
                if trained:
                    tensor.grad = self.gradient[place].view(shape)
        self._tell_flat(modules.values(), parameters)

    def _tell_flat(self, modules: Iterable[torch.nn.Module], parameters: list[torch.nn.Parameter]) -> None:
        """Each module whose parameters lie side by side, as all do but where single numbers come last."""
        starts = itertools.accumulate((parameter.numel() for parameter in parameters), initial=0)
        start_of = {id(parameter): start for parameter, start in zip(parameters, starts, strict=False)}
        for module in modules:
            end = begin = start_of.get(id(next(module.parameters(), None)), 0)
            for parameter in module.parameters():
                if start_of[id(parameter)] != end:
                    break
                end += parameter.numel()
            else:
                nn.laid_flat(module, self.flat[begin:end])

    @torch.no_grad()
    def load(self, values: NDArray[np.float32], what: str) -> None:
        """Copy published values over all of it.

        Raises:
            WireError: ``bad_parameters``, where they are not as many float32 numbers.
        """
        if values.dtype != np.float32 or values.shape != tuple(self.flat.shape):
            raise WireError(
                "bad_parameters",
                f"{what} of {values.dtype} {values.shape}, expected float32 {tuple(self.flat.shape)}: "
                "both learners must run the same algorithm options",
            )
        self._staging.load(self.flat, values)


class FlatAdam:
    """Adam (Kingma and Ba 2014, arXiv 1412.6980) over one buffer, in one call.

    Args:
        parameters: flat float32 ``[P]``, stepped in place.
        gradient: flat float32 ``[P]``, read at each step and zero afterwards.
        learning_rate: step size.
        beta2: how much of the mean squared gradient a step keeps.
        weight_decay: share of the parameters times the step size that a step takes away, apart from the
            gradient (Loshchilov and Hutter 2017, arXiv 1711.05101, algorithm 2).
        num_decaying: number of parameters that decay, the first ones; all by default.
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
        nn.code_for(parameters, gradient)  # compiled here if it never was, not within the first step
        self.learning_rate = learning_rate
        self._beta2 = beta2
        self._weight_decay = weight_decay
        self._num_decaying = len(parameters) if num_decaying is None else num_decaying
        self._max_gradient_norm = max_gradient_norm
        self._parameters, self._gradient = parameters, gradient
        self._mean, self._square = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self._steps = torch.zeros((), device=parameters.device)

    def step(self) -> None:
        """Move the parameters by the gradient."""
        nn.adam_step(
            self._parameters,
            self._gradient,
            self._mean,
            self._square,
            self._steps,
            learning_rate=self.learning_rate,
            beta2=self._beta2,
            weight_decay=self._weight_decay,
            num_decaying=self._num_decaying,
            max_gradient_norm=self._max_gradient_norm,
        )

    def state_dict(self) -> dict[str, Any]:
        """Copies of both moments and the number of steps."""
        return {
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "steps": self._steps.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._steps.copy_(state["steps"])
