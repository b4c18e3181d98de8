"""Recurrent networks, and their unrolling over the steps of a rollout."""

from __future__ import annotations

import torch
from torch import Tensor

from spreeze_zmq.nn.networks import linear


class Recurrent(torch.nn.Module):
    """A gated recurrent unit, GRU (Cho et al. 2014, arXiv 1406.1078), and a ``head`` on the observation and
    the new memory.

    Args:
        num_inputs: columns of an observation row.
        memory_size: ``M``, size of the memory.
        head: from rows of ``[observation, memory]`` to the output.
    """

    def __init__(self, num_inputs: int, memory_size: int, head: torch.nn.Module) -> None:
        super().__init__()
        self.seen = linear(num_inputs, 3 * memory_size)
        self.kept = linear(memory_size, 3 * memory_size)
        self.head = head

    def forward(self, rows: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step of ``N`` environments.

        Args:
            rows: ``[N, num_inputs]``.
            memory: ``[N, M]``, zeros where an episode begins.

        Returns:
            The output ``[N, outputs]``, and the next memory ``[N, M]``.
        """
        memory = self._next(self.seen(rows), memory)
        return self.head(torch.cat([rows, memory], 1)), memory

    def through(self, rows: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """See :func:`unroll`. Only the memory is computed step by step, the rest for all steps at once."""
        after = []
        for seen, stays in zip(self.seen(rows).view(*begins.shape, -1), _stays(begins), strict=True):
            memory = self._next(seen, memory * stays)
            after.append(memory)
        memories = torch.stack(after)
        return self.head(torch.cat([rows, memories.flatten(0, 1)], 1)), memories

    def _next(self, seen: Tensor, memory: Tensor) -> Tensor:
        reset, update, new = seen.chunk(3, 1)
        kept_reset, kept_update, kept_new = self.kept(memory).chunk(3, 1)
        share = torch.sigmoid(update + kept_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + kept_reset) * kept_new)
        return torch.lerp(candidate, memory, share)


def unroll(network: torch.nn.Module, rows: Tensor, memory: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    """Run a recurrent network over ``T`` steps of ``n`` environments, with gradients through all steps.

    Args:
        network: a :class:`Recurrent`, or any module that takes ``(rows [n, size], memory [n, M])`` and
            returns its output and the next memory.
        rows: ``[T * n, size]``, time-major.
        memory: ``[n, M]``, before the first step.
        begins: ``[T, n]`` bool, whether a step is an episode's first, which starts with a memory of zeros.

    Returns:
        The outputs ``[T * n, outputs]``, and the memory after each step ``[T, n, M]``.
    """
    if isinstance(network, Recurrent):
        return network.through(rows, memory, begins)
    outputs, after = [], []
    for seen, stays in zip(rows.view(*begins.shape, -1), _stays(begins), strict=True):
        output, memory = network(seen, memory * stays)
        outputs.append(output)
        after.append(memory)
    return torch.cat(outputs), torch.stack(after)


def remembered(memory: Tensor, after: Tensor, begins: Tensor) -> Tensor:
    """The memory before each step ``[T, n, M]``; ``after`` is the one after each step (:func:`unroll`)."""
    return torch.cat([memory[None], after[:-1]]) * _stays(begins)


def _stays(begins: Tensor) -> Tensor:
    """The factor of the memory ``[T, n, 1]``: 0 where an episode begins, else 1."""
    return (~begins).unsqueeze(2).float()
