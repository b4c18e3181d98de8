"""Observations to the numbers that a policy's distribution is made of, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class ObservationScaling:
    """Observations of any shape and dtype to float32 rows, normalised where the description asks for it."""

    def __init__(self, about: Mapping[str, Any], arrays: Mapping[str, Floats]):
        self.size = math.prod(int(size) for size in about["shape"])
        self._normalize = bool(about["normalize"])
        if self._normalize:
            self._clip = np.float32(about["clip"])
            self._mean = arrays["observation_mean"].reshape(self.size)
            self._std = arrays["observation_std"].reshape(self.size)
            if not (self._std > 0).all():
                raise ValueError("observation_std must be positive")

    def __call__(self, obs: NDArray[Any]) -> Floats:
        """``[N, *shape]`` to ``[N, size]``; may be the caller's own memory."""
        rows = obs.reshape(len(obs), self.size).astype(np.float32, copy=False)
        if not self._normalize:
            return rows
        scaled = (rows - self._mean) / self._std
        return np.clip(scaled, -self._clip, self._clip, out=scaled)


class Network:
    """The layers, over buffers that are kept while the number of observations stays the same."""

    def __init__(
        self, layers: Sequence[Mapping[str, Any]], parameters: Floats, num_inputs: int, num_outputs: int
    ):
        self._steps: list[_Step] = []
        size, offset = num_inputs, 0
        for layer in layers:
            shapes, size = _shapes(layer, size)
            weights = []
            for shape in shapes:
                end = offset + math.prod(shape)
                if end > parameters.size:
                    raise ValueError(f"the layers need more than the {parameters.size} parameters that came")
                weights.append(parameters[offset:end].reshape(shape))
                offset = end
            self._steps.append(_Step(layer, weights))
        if offset != parameters.size or parameters.ndim != 1:
            raise ValueError(f"parameters are {parameters.shape}, the layers need ({offset},)")
        if size != num_outputs:
            raise ValueError(f"the last layer gives {size} numbers, the distribution takes {num_outputs}")
        self._batch_size = -1
        self._buffers: list[Floats] = []

    def __call__(self, rows: Floats) -> Floats:
        """``[N, outputs]``; holds until the next call."""
        if len(rows) != self._batch_size:
            self._batch_size = len(rows)
            self._buffers = [np.empty((len(rows), max(step.out_size, 1)), np.float32) for step in self._steps]
        if self._steps[0].out_size == 0:
            rows = rows.copy()  # everything but a linear layer works in place, and these are the caller's
        for step, buffer in zip(self._steps, self._buffers, strict=True):
            rows = step(rows, buffer)
        return rows


def _shapes(layer: Mapping[str, Any], size: int) -> tuple[list[tuple[int, ...]], int]:
    """The shapes of a layer's parameters and the size of its output, for an input of ``size``."""
    kind = layer["kind"]
    if kind in ACTIVATIONS:
        return [], size
    if kind == "linear":
        if layer["in"] != size or not layer["out"] >= 1:
            raise ValueError(
                f"a linear layer takes {layer['in']} and gives {layer['out']}, {size} numbers come to it"
            )
        return [(layer["out"], size), (layer["out"],)], layer["out"]
    if kind == "layer_norm":
        if layer["size"] != size:
            raise ValueError(f"a layer_norm takes {layer['size']} numbers, {size} come to it")
        return [(size,), (size,)], size
    raise ValueError(f"unknown layer {kind!r}; there is linear, layer_norm, {', '.join(ACTIVATIONS)}")


class _Step:
    """One layer: linear into its buffer, everything else in place."""

    def __init__(self, layer: Mapping[str, Any], weights: Sequence[Floats]):
        self._function = ACTIVATIONS.get(layer["kind"])
        self._linear = layer["kind"] == "linear"
        self.out_size = int(layer["out"]) if self._linear else 0
        self._eps = float(layer.get("eps", 1e-5))
        if weights:
            # Transposed once: a product of few rows with a transposed view takes almost twice as long.
            self._weight = np.ascontiguousarray(weights[0].T) if self._linear else weights[0]
            self._bias = weights[1]

    def __call__(self, x: Floats, buffer: Floats) -> Floats:
        if self._linear:
            np.matmul(x, self._weight, out=buffer)
            buffer += self._bias
            return buffer
        if self._function is not None:
            self._function(x)
            return x
        x -= x.mean(1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(1, keepdims=True) + np.float32(self._eps))
        x *= self._weight
        x += self._bias
        return x


def _relu(x: Floats) -> None:
    np.maximum(x, 0.0, out=x)


def _elu(x: Floats) -> None:
    below = np.expm1(np.minimum(x, 0.0))
    np.maximum(x, 0.0, out=x)
    x += below


def _silu(x: Floats) -> None:
    # x / (1 + exp(-x)) by way of tanh, which does not overflow.
    x *= 0.5 * (1.0 + np.tanh(0.5 * x))


def _tanh(x: Floats) -> None:
    np.tanh(x, out=x)


#: In place on ``[N, size]``.
ACTIVATIONS: dict[str, Callable[[Floats], None]] = {"relu": _relu, "elu": _elu, "silu": _silu, "tanh": _tanh}
