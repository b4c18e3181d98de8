"""Networks that keep numbers from step to step, and the way through the steps of a rollout."""

from __future__ import annotations

import torch

from spreeze_zmq.nn.networks import linear


class Recurrent(torch.nn.Module):
    """A gated recurrent unit, GRU (Cho et al. 2014, arXiv 1406.1078), whose memory stands beside the
    observation in what the ``head`` takes.

    Args:
        num_inputs: numbers in a row of observations.
        memory_size: ``M``, numbers that it keeps.
        head: from rows of ``num_inputs + memory_size`` numbers to the output.
    """

    def __init__(self, num_inputs: int, memory_size: int, head: torch.nn.Module) -> None:
        super().__init__()
        self.seen = linear(num_inputs, 3 * memory_size)
        self.kept = linear(memory_size, 3 * memory_size)
        self.head = head

    def forward(self, rows: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One step of ``N`` environments.

        Args:
            rows: ``[N, num_inputs]``.
            memory: ``[N, M]``, zeros where an episode begins.

        Returns:
            The output ``[N, outputs]``, and the next memory ``[N, M]``.
        """
        memory = self._next(self.seen(rows), memory)
        return self.head(torch.cat([rows, memory], 1)), memory

    def through(
        self, rows: torch.Tensor, memory: torch.Tensor, begins: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As :func:`unroll` has it; all but the memory is computed for all steps at once."""
        after = []
        for seen, stays in zip(self.seen(rows).view(*begins.shape, -1), _stays(begins), strict=True):
            memory = self._next(seen, memory * stays)
            after.append(memory)
        memories = torch.stack(after)
        return self.head(torch.cat([rows, memories.flatten(0, 1)], 1)), memories

    def _next(self, seen: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        reset, update, new = seen.chunk(3, 1)
        kept_reset, kept_update, kept_new = self.kept(memory).chunk(3, 1)
        share = torch.sigmoid(update + kept_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + kept_reset) * kept_new)
        return torch.lerp(candidate, memory, share)


def unroll(
    network: torch.nn.Module, rows: torch.Tensor, memory: torch.Tensor, begins: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``T`` steps of ``n`` environments through a network with a memory, which takes ``(rows [n, size],
    memory [n, M])`` and returns its output and the next memory. Gradients go back through all steps.

    Args:
        network: a :class:`Recurrent`, or any other.
        rows: ``[T * n, size]``, time-major.
        memory: ``[n, M]``, from before the first step.
        begins: ``[T, n]`` bool, whether a step is an episode's first, before which the memory is forgotten.

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


def remembered(memory: torch.Tensor, after: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
    """``[T, n, M]``: what is remembered before each step, given the memory after each of :func:`unroll`."""
    return torch.cat([memory[None], after[:-1]]) * _stays(begins)


def _stays(begins: torch.Tensor) -> torch.Tensor:
    """``[T, n, 1]``: 0 where the memory is forgotten, else 1."""
    return (~begins).unsqueeze(2).float()
