"""An encoder for each part of an observation that is flattened to one vector: convolutions for an image, a
linear layer for a vector, an embedding for a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spreeze_zmq.nn.described import ACTIVATIONS
from spreeze_zmq.nn.layers import linear
from spreeze_zmq.nn.networks import CONVOLUTIONS, cnn

#: Features of an image, of a vector, and the most of a choice.
IMAGE_FEATURES, VECTOR_FEATURES, MOST_EMBEDDED = 128, 64, 32


@dataclass(frozen=True)
class PartForm:
    """What one part of an observation is.

    Attributes:
        image: ``(channels, height, width)``; None for another part.
        channels_last: whether the image's numbers come as ``[height, width, channels]``.
        size: numbers of a vector; 0 for another part.
        choices: number of choices of each discrete number, one-hot one after the other; empty for others.
        divisor: of an image's numbers; the largest pixel where pixels are not scaled otherwise.
        layers: of an image, a key of ``CONVOLUTIONS``.
    """

    image: tuple[int, int, int] | None = None
    channels_last: bool = False
    size: int = 0
    choices: tuple[int, ...] = ()
    divisor: float = 1.0
    layers: str = "small_cnn"

    @property
    def width(self) -> int:
        """Its numbers in a row."""
        if self.image is not None:
            channels, height, width = self.image
            return channels * height * width
        return self.size + sum(self.choices)


class Picture(torch.nn.Module):
    """Convolutions on an image as it stands in a row."""

    def __init__(self, form: PartForm) -> None:
        super().__init__()
        assert form.image is not None
        self.form, self.scale = form, 1.0 / form.divisor
        self.network = cnn(form.image, IMAGE_FEATURES, CONVOLUTIONS[form.layers])

    def forward(self, rows: Tensor) -> Tensor:
        """``[B, width]`` to ``[B, IMAGE_FEATURES]``."""
        assert self.form.image is not None
        if self.form.channels_last:
            channels, height, width = self.form.image
            rows = rows.reshape(-1, height, width, channels).permute(0, 3, 1, 2).flatten(1)
        features: Tensor = self.network(rows * self.scale)
        return features


def _drawn(*shape: int) -> Tensor:
    """Standard normal numbers; on the meta device none, whose ``normal_`` imports torch's compiler."""
    numbers = torch.empty(*shape)
    return numbers if numbers.is_meta else numbers.normal_()


class Embedding(torch.nn.Module):
    """A learned vector for each choice; those of several discrete numbers one after the other."""

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__()
        self.choices = list(choices)
        widths = [min(MOST_EMBEDDED, num) for num in choices]
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(_drawn(num, width)) for num, width in zip(choices, widths, strict=True)
        )
        self.num_outputs = sum(widths)

    def forward(self, rows: Tensor) -> Tensor:
        """One-hot rows ``[B, sum(choices)]``, scaled or not, to ``[B, num_outputs]``."""
        parts = zip(self.weights, torch.split(rows, self.choices, 1), strict=True)
        return torch.cat([torch.nn.functional.embedding(part.argmax(1), weight) for weight, part in parts], 1)


class Parts(torch.nn.Module):
    """Encodes each part of rows ``[B, size]`` and joins the features, ``[B, num_outputs]``.

    Args:
        forms: of the parts, in the order of a row.
        activation: a key of ``ACTIVATIONS``, after each encoder of an image or a vector.

    Attributes:
        num_outputs: numbers in an output row.
    """

    def __init__(self, forms: Sequence[PartForm], activation: str) -> None:
        super().__init__()
        self.sizes = [form.width for form in forms]
        self.encoders = torch.nn.ModuleList()
        self.num_outputs = 0
        for form in forms:
            if form.choices:
                embedding = Embedding(form.choices)
                self.encoders.append(embedding)
                self.num_outputs += embedding.num_outputs
                continue
            is_image = form.image is not None
            inner = Picture(form) if is_image else linear(form.size, VECTOR_FEATURES)
            self.encoders.append(torch.nn.Sequential(inner, ACTIVATIONS[activation]()))
            self.num_outputs += IMAGE_FEATURES if is_image else VECTOR_FEATURES

    def forward(self, rows: Tensor) -> Tensor:
        """See the class."""
        parts = zip(self.encoders, torch.split(rows, self.sizes, 1), strict=True)
        return torch.cat([encoder(part) for encoder, part in parts], 1)
