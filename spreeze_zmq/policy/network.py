"""A policy's network in NumPy: rows of observations to the rows that its head draws actions from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from spreeze_zmq.policy.actor import Floats
from spreeze_zmq.policy.description import Layer

#: Takes rows and a buffer ``[N, num_outputs]``; returns the buffer, or the rows where it works in place.
Step = Callable[[Floats, Floats], Floats]


class _Buffers(threading.local):
    """Those of one thread: NumPy lets others run while it multiplies."""

    def __init__(self) -> None:
        self.batch_size = -1
        self.arrays: list[Floats] = []


class Network:
    """Evaluates layers over buffers that are reused while a thread's number of rows stays the same.

    Args:
        layers: any but ``conv2d``, which runs in torch.

    Attributes:
        num_outputs: numbers in an output row.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.num_outputs = layers[-1].num_outputs
        self._steps = [_step(layer) for layer in layers]
        self._sizes = [layer.num_outputs if layer.kind in BUFFERED else 1 for layer in layers]
        self._in_place_first = layers[0].kind not in BUFFERED
        self._buffers = _Buffers()

    def __call__(self, rows: Floats) -> Floats:
        """``[N, inputs]`` to ``[N, num_outputs]``; the result is valid until its thread's next call."""
        buffers = self._buffers
        if len(rows) != buffers.batch_size:
            buffers.batch_size = len(rows)
            buffers.arrays = [np.empty((len(rows), size), np.float32) for size in self._sizes]
        if self._in_place_first:
            rows = rows.copy()  # the caller's rows stay as they are
        for step, buffer in zip(self._steps, buffers.arrays, strict=True):
            rows = step(rows, buffer)
        return rows


def _step(layer: Layer) -> Step:
    if layer.kind in ACTIVATIONS:
        return ACTIVATIONS[layer.kind]
    return BUFFERED[layer.kind](layer) if layer.kind in BUFFERED else _layer_norm(layer)


def _linear(layer: Layer) -> Step:
    weight, bias = np.ascontiguousarray(layer.weights[0].T), layer.weights[1]  # a view of the weights

    def step(x: Floats, buffer: Floats) -> Floats:
        np.matmul(x, weight, out=buffer)
        buffer += bias
        return buffer

    return step


def _layer_norm(layer: Layer) -> Step:
    (weight, bias), eps = layer.weights, np.float32(layer.eps)

    def step(x: Floats, buffer: Floats) -> Floats:
        x -= x.mean(1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(1, keepdims=True) + eps)
        x *= weight
        x += bias
        return x

    return step


def _append(layer: Layer) -> Step:
    (numbers,), num_inputs = layer.weights, layer.num_inputs

    def step(x: Floats, buffer: Floats) -> Floats:
        buffer[:, :num_inputs] = x
        buffer[:, num_inputs:] = numbers
        return buffer

    return step


def _dueling(layer: Layer) -> Step:
    """Action values from a value and advantages (arXiv 1511.06581, equation 9), for each atom."""

    def step(x: Floats, buffer: Floats) -> Floats:
        parts = x.reshape(len(x), 1 + layer.actions, layer.atoms)
        value, advantage = parts[:, :1], parts[:, 1:]
        values = buffer.reshape(advantage.shape)
        np.subtract(advantage, advantage.mean(1, keepdims=True), out=values)
        values += value
        return buffer

    return step


def _relu(x: Floats, buffer: Floats) -> Floats:
    return np.maximum(x, 0.0, out=x)


def _elu(x: Floats, buffer: Floats) -> Floats:
    below = np.expm1(np.minimum(x, 0.0))
    np.maximum(x, 0.0, out=x)
    x += below
    return x


def _silu(x: Floats, buffer: Floats) -> Floats:
    # x / (1 + exp(-x)) by way of tanh, which does not overflow.
    x *= 0.5 * (1.0 + np.tanh(0.5 * x))
    return x


def _tanh(x: Floats, buffer: Floats) -> Floats:
    return np.tanh(x, out=x)


#: These layers work in place, and so does layer_norm.
ACTIVATIONS: dict[str, Step] = {"relu": _relu, "elu": _elu, "silu": _silu, "tanh": _tanh}
#: These layers write their result into a buffer.
BUFFERED: dict[str, Callable[[Layer], Step]] = {"linear": _linear, "append": _append, "dueling": _dueling}
