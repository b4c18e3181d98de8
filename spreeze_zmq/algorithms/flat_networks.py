"""A group of networks whose parameters and buffers are views of one flat float32 buffer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spreeze_zmq import nn
from spreeze_zmq.algorithms.packing import Layout
from spreeze_zmq.base.errors import WireError
from spreeze_zmq.nn.device import Staging

_KEPT = "a network keeps its tensors in their forms, all but buffers with persistent=False"


class TensorPlaces:
    """The parameters and buffers of a network, by where it holds them; not the buffers with
    ``persistent=False``, in which it may keep what it likes.

    Args:
        name: of the network.
        network: as it was laid out.
    """

    def __init__(self, name: str, network: torch.nn.Module) -> None:
        self.name, self.network = name, network
        self._first = {place: store[key] for place, (store, key) in _held_by(network).items()}

    @torch.no_grad()
    def arrivals(self, gradients: bool, replaced_by: torch.nn.Module | None = None) -> list[Arrival]:
        """What has come in the places of tensors, as by ``self.q[4] = nn.Linear(8, 2)``.

        Args:
            gradients: whether the gradients of what has come count, too.
            replaced_by: the network whose tensors have come, where the whole one was replaced.

        Raises:
            ValueError: a tensor is gone, has come without a place, or has another shape.
        """
        now = _held_by(replaced_by or self.network)
        for place in sorted(self._first.keys() ^ now.keys()):
            store, key = now.get(place, ({place: None}, place))
            if place in self._first:
                raise ValueError(f"{self.name}.{place} is gone: {_KEPT}")
            if isinstance(store[key], torch.nn.Parameter):
                raise ValueError(f"{self.name}.{place} is new: networks() makes all that is trained")
        new = [each for each in now.items() if each[0] in self._first]
        new = [(place, at) for place, at in new if at[0][at[1]] is not self._first[place]]
        for place, (store, key) in new:
            _check_form(f"{self.name}.{place}", store[key], self._first[place])
        return [
            Arrival(self._first[place], _copy(store[key], gradients), None if replaced_by else store, key)
            for place, (store, key) in new
        ]


class Arrival(NamedTuple):
    """A tensor that has come in the place of another one.

    Attributes:
        first: the one whose place it is, which is trained, published and saved.
        copy: of what has come, which may be another one's place.
        store: where the first one is put back under ``key``; None if nothing is.
        key: its name there.
    """

    first: torch.Tensor
    copy: torch.Tensor
    store: dict[str, Any] | None
    key: str

    @torch.no_grad()
    def settle(self) -> None:
        """Give the first one the numbers of what has come, and its gradient where that counts."""
        self.first.copy_(self.copy)
        if self.store is not None:
            self.store[self.key] = self.first
        if self.copy.grad is not None and self.first.requires_grad:
            self.first.grad = self.copy.grad


def _held_by(network: torch.nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Where a network holds each of its tensors."""
    return {
        f"{prefix}.{key}" if prefix else key: (store, key)
        for prefix, part in network.named_modules(remove_duplicate=False)
        for store in (part._parameters, part._buffers)
        for key, tensor in store.items()
        if tensor is not None and key not in part._non_persistent_buffers_set
    }


def _copy(tensor: torch.Tensor, gradient: bool) -> torch.Tensor:
    """One of its own memory, with the gradient where this is wanted and there is one."""
    copy = tensor.detach().clone()
    if gradient and tensor.grad is not None:
        copy.grad = tensor.grad.clone()
    return copy


def _check_form(name: str, tensor: torch.Tensor, place: torch.Tensor) -> None:
    if tensor.shape != place.shape or tensor.is_floating_point() != place.is_floating_point():
        now, first = (f"{each.dtype} {list(each.shape)}".removeprefix("torch.") for each in (tensor, place))
        raise ValueError(f"{name} has become {now}, expected {first}: {_KEPT}")


def _views(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of ``flat``, one after the other, in the shapes of ``tensors``."""
    pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]


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
        tensors = (*parameters, *buffers)
        device = parameters[0].device if parameters else torch.device("cpu")
        pieces = [tensor.detach().reshape(-1).float() for tensor in tensors]
        self.flat = torch.cat(pieces) if pieces else torch.empty(0, device=device)
        self._staging = Staging(device)
        self.num_acting = sum(p.numel() for p in acting)
        self.held = frozenset(map(id, parameters)) if trained else frozenset[int]()
        self.trained = self.flat[: sum(p.numel() for p in parameters)]
        self.gradient = torch.zeros_like(self.trained) if trained else torch.empty(0, device=device)
        named = [pair for name, module in modules.items() for pair in _named(name, module)]
        name_of = {id(tensor): name for name, tensor in reversed(named)}
        self.packing = Layout(tuple((name_of[id(t)], tuple(t.shape)) for t in tensors))
        parts = [part for module in modules.values() for part in module.modules()]
        free = {id(part._buffers[key]) for part in parts for key in part._non_persistent_buffers_set}
        self._laid: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        for (name, _), tensor, place in zip(
            self.packing.tensors, tensors, _views(self.flat, tensors), strict=True
        ):
            tensor.data = place
            if id(tensor) not in free:
                self._laid.append((name, tensor, place))
        self._addresses = [tensor.data_ptr() for _, tensor, _ in self._laid]
        for parameter in parameters:
            parameter.requires_grad_(trained)
        self._shares = (
            list(zip(parameters, _views(self.gradient, parameters), strict=True)) if trained else []
        )
        for parameter, share in self._shares:
            parameter.grad = share
        self._declare_flat(modules.values(), parameters)

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

    def gather_gradient(self) -> None:
        """Copy the gradients that are elsewhere, as after ``zero_grad``, into ``gradient``, where the cleared
        ones still stand, and return to it; to be called without gradients, as :meth:`gather_data`.
        """
        for parameter, place in self._shares:
            if (grad := parameter.grad) is not place:
                if grad is None:
                    place.zero_()
                else:
                    place.copy_(grad.to_dense())  # an embedding's may be sparse
                parameter.grad = place

    def gather_data(self) -> None:
        """Copy ``data`` that are elsewhere, as after ``p.data = p.data.clamp(-1, 1)``, into ``flat``, and
        return to it. Raises ValueError for another shape.
        """
        if [tensor.data_ptr() for _, tensor, _ in self._laid] == self._addresses:
            return
        for each in self._laid:
            _check_form(*each)
        moved = [each[1:] for each in self._laid if each[1].data_ptr() != each[2].data_ptr()]
        values = [tensor.detach().clone() for tensor, _ in moved]  # one may be in another's place
        for (tensor, place), value in zip(moved, values, strict=True):
            tensor.data = place.copy_(value)

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
