"""Layers that torch does not have, all from flat rows ``[B, in]`` to flat rows ``[B, out]``, and the random
shift of images in such rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


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
