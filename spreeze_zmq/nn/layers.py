"""Layers that torch does not have, from flat rows ``[B, in]`` to flat rows ``[B, out]``; recurrent networks,
and their unrolling over the steps of a rollout; the random shift of images.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def linear(inputs: int, outputs: int, scale: float = 1.0) -> torch.nn.Linear:
    """An affine map whose weights and biases are uniform in +-scale/sqrt(inputs)."""
    layer = torch.nn.Linear(inputs, outputs)
    bound = scale / inputs**0.5
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -bound, bound)
    return layer


class Conv(torch.nn.Module):
    """A 2-d convolution without padding.

    Args:
        shape: ``(channels, height, width)`` of the image that each row holds, flattened in that order.
        out: channels of the result.
        kernel: height and width of the filters.
        stride: step of the filters in both directions.

    Attributes:
        input_size: columns of an input row.
        output_shape: ``(out, height2, width2)`` with ``height2 = (height - kernel) // stride + 1``.
        output_size: columns of an output row.

    Raises:
        ValueError: the image is smaller than the filters.
    """

    def __init__(self, shape: tuple[int, int, int], out: int, kernel: int, stride: int) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < kernel:
            raise ValueError(
                f"an image of {height} x {width} is smaller than a filter of {kernel} x {kernel}"
            )
        self.shape, self.stride, self.input_size = (channels, height, width), stride, math.prod(shape)
        bound = 1.0 / math.sqrt(channels * kernel * kernel)
        self.weight = torch.nn.Parameter(torch.empty(out, channels, kernel, kernel).uniform_(-bound, bound))
        self.bias = torch.nn.Parameter(torch.empty(out).uniform_(-bound, bound))
        self.output_shape = (out, (height - kernel) // stride + 1, (width - kernel) // stride + 1)
        self.output_size = math.prod(self.output_shape)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels * height * width]`` to ``[B, output_size]``."""
        images = functional.conv2d(x.reshape(-1, *self.shape), self.weight, self.bias, self.stride)
        return images.flatten(1)


class Append(torch.nn.Module):
    """Appends the same ``size`` learned numbers to every row; all start as ``value``."""

    def __init__(self, size: int, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.full((size,), float(value)))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, n]`` to ``[B, n + size]``."""
        return torch.cat((x, self.value.to(x.dtype).expand(x.shape[0], -1)), 1)


class Dueling(torch.nn.Module):
    """Action values from the state value and advantages (Wang et al. 2016, arXiv 1511.06581, equation 9).

    An input row holds ``atoms`` numbers for the value, then ``atoms`` for each action's advantage.
    """

    def __init__(self, actions: int, atoms: int = 1) -> None:
        super().__init__()
        self.actions, self.atoms = actions, atoms

    def forward(self, x: Tensor) -> Tensor:
        """``[B, (1 + actions) * atoms]`` to ``[B, actions * atoms]``."""
        rows = x.reshape(-1, 1 + self.actions, self.atoms)
        value, advantage = rows[:, :1], rows[:, 1:]
        return (value + advantage - advantage.mean(1, keepdim=True)).flatten(1)


class Number(torch.nn.Module):
    """One number, such as a log temperature; a constant unless ``learned``."""

    def __init__(self, value: float, learned: bool = True) -> None:
        super().__init__()
        number = torch.tensor(float(value))
        if learned:
            self.value = torch.nn.Parameter(number)
        else:
            self.register_buffer("value", number)

    def forward(self) -> Tensor:
        """0-d."""
        return self.value


#: Added to a fresh unit's bias of how much it keeps, so that this is about nine tenths in a step and not
#: half: what was seen sixteen steps ago still has a gradient (Tallec and Ollivier 2018, arXiv 1804.11188).
KEPT_BIAS = 2.0


class Recurrent(torch.nn.Module):
    """A gated recurrent unit, GRU (Cho et al. 2014, arXiv 1406.1078), and a ``head`` on the observation and
    the new memory. A fresh one keeps most of its memory.

    Args:
        num_inputs: columns of an observation row.
        memory_size: ``M``, size of the memory.
        head: from rows of ``[observation, memory]`` to the output.
    """

    def __init__(self, num_inputs: int, memory_size: int, head: torch.nn.Module) -> None:
        super().__init__()
        self.seen = linear(num_inputs, 3 * memory_size)
        self.kept = linear(memory_size, 3 * memory_size)
        with torch.no_grad():
            self.kept.bias[memory_size : 2 * memory_size].add_(KEPT_BIAS)
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
        after = self.memories(rows, memory, begins)
        return self.head(torch.cat([rows, after.flatten(0, 1)], 1)), after

    def memories(self, rows: Tensor, memory: Tensor, begins: Tensor) -> Tensor:
        """See :func:`memories`."""
        after = []
        for seen, stays in zip(self.seen(rows).view(*begins.shape, -1), _stays(begins), strict=True):
            memory = self._next(seen, memory * stays)
            after.append(memory)
        return torch.stack(after)

    def _next(self, seen: Tensor, memory: Tensor) -> Tensor:
        reset, update, new = seen.float().chunk(3, 1)  # the products alone may be bf16
        kept_reset, kept_update, kept_new = self.kept(memory).float().chunk(3, 1)
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


def memories(network: torch.nn.Module, rows: Tensor, memory: Tensor, begins: Tensor) -> Tensor:
    """The memory after each step ``[T, n, M]`` alone; arguments as for :func:`unroll`."""
    if isinstance(network, Recurrent):
        return network.memories(rows, memory, begins)
    return unroll(network, rows, memory, begins)[1]


def remembered(memory: Tensor, after: Tensor, begins: Tensor) -> Tensor:
    """The memory before each step ``[T, n, M]``; ``after`` is the one after each step (:func:`unroll`)."""
    return torch.cat([memory[None], after[:-1]]) * _stays(begins)


def _stays(begins: Tensor) -> Tensor:
    """The factor of the memory ``[T, n, 1]``: 0 where an episode begins, else 1."""
    return (~begins).unsqueeze(2).float()


def random_shift(rows: Tensor, shape: tuple[int, ...], pixels: int) -> Tensor:
    """Shift each image by up to ``pixels`` vertically and horizontally and repeat its border in the gap (DrQ,
    Kostrikov et al. 2020, arXiv 2004.13649, section 3.1).

    Args:
        rows: ``[B, channels * height * width]``; all channels of an image move together.
        shape: ``(channels, height, width)``.
        pixels: largest shift; 4 in the paper, for images of 84 x 84.

    Returns:
        ``[B, channels * height * width]``; shifts come from torch's default generator.
    """
    num, (channels, height, width) = len(rows), shape
    down, right = torch.randint(-pixels, pixels + 1, (2, num, 1), device=rows.device)
    row = (torch.arange(height, device=rows.device) + down).clamp_(0, height - 1)
    column = (torch.arange(width, device=rows.device) + right).clamp_(0, width - 1)
    place = (row.unsqueeze(2) * width + column.unsqueeze(1)).view(num, 1, height * width)
    images = rows.reshape(num, channels, height * width)
    return images.gather(2, place.expand(-1, channels, -1)).view(num, -1)
