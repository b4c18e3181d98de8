"""Several networks in one flat float32 buffer: what an optimiser steps and a channel carries in one piece."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

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
        self.flat.copy_(torch.from_numpy(np.array(values)))
