"""A group of networks whose parameters and buffers are views of one flat float32 buffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq import nn
from spreeze_zmq.algorithms.packing import Layout
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.nn.device import Staging


def _named(name: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer of a module with its place, such as ``policy.0.weight``."""
    for place, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        yield f"{name}.{place}", tensor


class FlatNetworks:
    """Modules whose parameters and float buffers become views of one buffer, those of several modules once.

    Their order is the parameters of the module called ``first``, those of the others, 0-d parameters of these
    such as a temperature, then all float buffers, such as the running means of a batch normalisation, which
    are published but not trained.

    Args:
        modules: by name, on their device already.
        first: name of the module that comes first, if it is among them.
        trained: whether the parameters get gradients, as views of ``gradient``.

    Attributes:
        flat: ``[P + Q]``, parameters and buffers.
        trained: ``[P]``, the parameters; a view of ``flat``.
        gradient: ``[P]``; empty where nothing is trained.
        parameters: in their order.
        num_acting: number of parameters of the module called ``first``; 0 where it is not among them.
        held: ids of the parameters that are trained.
        packing: what ``flat`` holds, by name and shape.
    """

    def __init__(self, modules: Mapping[str, torch.nn.Module], first: str, *, trained: bool) -> None:
        acting = list(modules[first].parameters()) if first in modules else []
        every = dict.fromkeys([*acting, *(p for module in modules.values() for p in module.parameters())])
        others = list(every)[len(acting) :]
        parameters = [*acting, *sorted(others, key=lambda parameter: parameter.dim() == 0)]
        self.parameters = parameters
        buffers = dict.fromkeys(
            b for module in modules.values() for b in module.buffers() if b.is_floating_point()
        )
        device = parameters[0].device if parameters else torch.device("cpu")
        pieces = [tensor.detach().reshape(-1).float() for tensor in (*parameters, *buffers)]
        self.flat = torch.cat(pieces) if pieces else torch.empty(0, device=device)
        self._staging = Staging(device)
        self.num_acting = sum(p.numel() for p in acting)
        self.held = frozenset(map(id, parameters)) if trained else frozenset[int]()
        self.trained = self.flat[: sum(p.numel() for p in parameters)]
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
        self._declare_flat(modules.values(), parameters)
        named = [pair for name, module in modules.items() for pair in _named(name, module)]
        name_of = {id(tensor): name for name, tensor in reversed(named)}
        self.packing = Layout(tuple((name_of[id(t)], tuple(t.shape)) for t in (*parameters, *buffers)))

    def _declare_flat(self, modules: Iterable[torch.nn.Module], parameters: list[torch.nn.Parameter]) -> None:
        """Call :func:`nn.laid_flat` for each module with consecutive parameters: all but those with both 0-d
        and other ones.
        """
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
        """Overwrite all parameters and buffers with published values; ``what`` names these in the error.

        Raises:
            WireError: ``bad_parameters``, unless ``values`` is float32 ``[P + Q]``.
        """
        if values.dtype != np.float32 or values.shape != tuple(self.flat.shape):
            raise WireError(
                "bad_parameters",
                f"{what} of {values.dtype} {values.shape}, expected float32 {tuple(self.flat.shape)}: "
                "both learners must run the same algorithm options",
            )
        with self._staging.filling(self.flat) as flat:
            flat[:] = values
