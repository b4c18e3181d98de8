"""Checked reads from a policy's description, which others wrote and which may hold anything: numbers of its
tables, and its layers, each with its slice of the flat parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spreeze_zmq.policy.actor import Floats

#: Layers that apply one function elementwise.
ACTIVATIONS = ("relu", "elu", "silu", "tanh")
KINDS = ("linear", "layer_norm", "conv2d", "append", "dueling", *ACTIVATIONS)


def count(table: Mapping[str, Any], name: str) -> int:
    """The integer ``name``, at least 1. Raises KeyError where it is missing, ValueError for anything else."""
    return _count(name, table[name])


def counts(table: Mapping[str, Any], name: str, least: int = 1) -> tuple[int, ...]:
    """The list ``name`` of integers, each at least ``least``. Raises as :func:`count`."""
    values = table[name]
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{name} is {values!r:.60}, expected a list of numbers")
    return tuple(_count(name, value, least) for value in values)


def number(table: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """The finite number ``name``, or ``default`` where it is missing.

    Raises KeyError where both are missing, ValueError for anything but a finite number.
    """
    value = table[name] if default is None else table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.60}, expected a finite number")
    return float(value)


def numbers_in_order(table: Mapping[str, Any], lower: str, upper: str) -> tuple[float, float]:
    """Two finite numbers, the first not above the second. Raises as :func:`number`."""
    low, high = number(table, lower), number(table, upper)
    if low > high:
        raise ValueError(f"{lower} {low} is above {upper} {high}")
    return low, high


def _count(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r:.60}, expected an integer of at least {least}")
    return value


@dataclass(frozen=True)
class Layer:
    """One layer, which maps rows ``[N, num_inputs]`` to rows ``[N, num_outputs]``.

    Attributes:
        kind: one of ``KINDS``.
        num_inputs: numbers in an input row.
        num_outputs: numbers in an output row.
        weights: copies of the parameters: of ``linear`` ``[out, in]`` and ``[out]``, of ``layer_norm``
            ``[size]`` and ``[size]``, of ``conv2d`` ``[out, c, kernel, kernel]`` and ``[out]``, of ``append``
            ``[size]``.
        image: ``(c, h, w)`` of a ``conv2d``'s input rows.
        stride: of a ``conv2d``.
        eps: of a ``layer_norm``.
        actions: of a ``dueling`` layer.
        atoms: of a ``dueling`` layer.
    """

    kind: str
    num_inputs: int
    num_outputs: int
    weights: tuple[Floats, ...] = ()
    image: tuple[int, ...] = ()
    stride: int = 1
    eps: float = 1e-5
    actions: int = 0
    atoms: int = 0


def read_layers(description: Sequence[Mapping[str, Any]], parameters: Floats, num_inputs: int) -> list[Layer]:
    """The layers of a description over ``parameters`` ``[P]``, for input rows of ``num_inputs`` numbers.

    Raises:
        KeyError, TypeError, ValueError: layers and parameters do not fit, or a kind of layer is unknown.
    """
    if parameters.ndim != 1:
        raise ValueError(f"parameters are {parameters.shape}, expected them flat")
    if not description:
        raise ValueError("there are no layers")
    layers: list[Layer] = []
    size, needed = num_inputs, 0
    for about in description:
        shapes, size, more = _shapes(about, size)
        needed += sum(map(math.prod, shapes))
        if needed > parameters.size:
            raise ValueError(f"the layers need more than the {parameters.size} parameters that came")
        # A product of few rows with a transposed view takes almost twice as long: NumPy gets it transposed.
        order: Any = "F" if about["kind"] == "linear" else "C"
        weights = tuple(np.empty(shape, np.float32, order) for shape in shapes)
        layers.append(Layer(about["kind"], num_inputs, size, weights, **more))
        num_inputs = size
    if needed != parameters.size:
        raise ValueError(f"parameters are {parameters.shape}, the layers need ({needed},)")
    load_weights(layers, parameters)
    return layers


def load_weights(layers: Sequence[Layer], parameters: Floats) -> None:
    """Copy other ``parameters``, of the same shape, into the layers' weights."""
    begin = 0
    for layer in layers:
        for weight in layer.weights:
            weight[...] = parameters[begin : begin + weight.size].reshape(weight.shape)
            begin += weight.size


def _shapes(about: Mapping[str, Any], size: int) -> tuple[list[tuple[int, ...]], int, dict[str, Any]]:
    """The shapes of a layer's parameters, the size of its output rows for input rows of ``size``, and its
    further fields.
    """
    kind = about["kind"]
    if kind in ACTIVATIONS:
        return [], size, {}
    if kind == "linear":
        out = count(about, "out")
        if about["in"] != size:
            raise ValueError(f"a linear layer takes {about['in']} and gives {out}, {size} numbers come to it")
        return [(out, size), (out,)], out, {}
    if kind == "layer_norm":
        if about["size"] != size:
            raise ValueError(f"a layer_norm takes {about['size']} numbers, {size} come to it")
        return [(size,), (size,)], size, {"eps": number(about, "eps", 1e-5)}
    if kind == "append":
        return [(count(about, "size"),)], size + about["size"], {}
    if kind == "dueling":
        actions, atoms = count(about, "actions"), count(about, "atoms")
        if size != (needed := (1 + actions) * atoms):
            raise ValueError(
                f"a dueling layer of {actions} actions and {atoms} atoms takes {needed} numbers, "
                f"{size} come to it"
            )
        return [], actions * atoms, {"actions": actions, "atoms": atoms}
    if kind == "conv2d":
        return _conv2d(about, size)
    raise ValueError(f"unknown layer {kind!r}; there is {', '.join(KINDS)}")


def _conv2d(about: Mapping[str, Any], size: int) -> tuple[list[tuple[int, ...]], int, dict[str, Any]]:
    image = counts(about, "shape")
    out, kernel, stride = (count(about, name) for name in ("out", "kernel", "stride"))
    if len(image) != 3 or math.prod(image) != size:
        raise ValueError(f"a conv2d takes images [c, h, w] of shape {list(image)}, {size} numbers come to it")
    channels, height, width = image
    if kernel > min(height, width):
        raise ValueError(f"a conv2d with a kernel of {kernel} takes larger images than {list(image)}")
    num_outputs = out * ((height - kernel) // stride + 1) * ((width - kernel) // stride + 1)
    return [(out, channels, kernel, kernel), (out,)], num_outputs, {"image": image, "stride": stride}
