"""The matrix products of SAC's updates at their own shapes and nothing else, for ``plain_sac.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

Product = Callable[[], object]


def update_products(
    batch_size: int, precision: str, critic: Sequence[int], policy: Sequence[int], num_actions: int
) -> Callable[[], None]:
    """Every product of a critic update and of an actor update, at its own shape and in its turn; their FLOP
    are those of ``critic_flops`` and ``actor_flops``.
    """
    dtype = _dtype(precision)
    critics, targets = ([_network(batch_size, critic, dtype) for _ in range(2)] for _ in range(2))
    acting = _network(batch_size, policy, dtype)
    to_action = [Layer(batch_size, num_actions, critic[1], dtype) for _ in critics]
    of_critic = [layer.forward() for network in (acting, *targets, *critics) for layer in network]
    for network in critics:
        of_critic += _backward(network)
    of_actor = [layer.forward() for network in (acting, *critics) for layer in network]
    for network, first in zip(critics, to_action, strict=True):
        of_actor += [layer.backward() for layer in (*reversed(network[1:]), first)]
    return _all([*of_critic, *of_actor, *_backward(acting)])


class Layer:
    """One linear layer's weights, inputs, outputs and their gradients; its products are to be called later.

    Args:
        batch_size: rows.
        inputs: columns before it.
        outputs: columns after it.
        dtype: of everything.
    """

    def __init__(self, batch_size: int, inputs: int, outputs: int, dtype: torch.dtype):
        self.x = torch.randn(batch_size, inputs).to(dtype)
        self.weight = torch.randn(outputs, inputs).to(dtype)
        self.gradient = torch.randn(batch_size, outputs).to(dtype)

    def forward(self) -> Product:
        """``[B, in]`` times ``[in, out]``; the other way round where the output is a single column, which is
        three times as fast.
        """
        if len(self.weight) == 1:
            return _product(self.weight, self.x.T)
        return _product(self.x, self.weight.T)

    def backward(self) -> Product:
        """``[B, out]`` times ``[out, in]``."""
        return _product(self.gradient, self.weight)

    def weight_gradient(self) -> Product:
        """``[out, B]`` times ``[B, in]``; the other way round where that is faster, as in a narrow layer."""
        outputs, inputs = self.weight.shape
        if 2 * inputs <= outputs:
            return _product(self.x.T, self.gradient)
        return _product(self.gradient.T, self.x)


def _network(batch_size: int, widths: Sequence[int], dtype: torch.dtype) -> list[Layer]:
    return [Layer(batch_size, inputs, outputs, dtype) for inputs, outputs in pairwise(widths)]


def _backward(network: Sequence[Layer]) -> list[Product]:
    """The gradients of all weights, and of all layers' inputs but the first's."""
    products = []
    for layer in reversed(network[1:]):
        products += [layer.weight_gradient(), layer.backward()]
    return [*products, network[0].weight_gradient()]


def _product(left: torch.Tensor, right: torch.Tensor) -> Product:
    output = left.new_empty(left.shape[0], right.shape[1])
    return lambda: torch.mm(left, right, out=output)


def _all(products: Sequence[Product]) -> Callable[[], None]:
    def multiply() -> None:
        for product in products:
            product()

    return multiply


def _dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32
