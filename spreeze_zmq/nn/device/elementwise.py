"""Consecutive elementwise operations of a tape as one native call, with torch's results to the bit.

Between its products an update adds, scales, compares and clips rows of a few hundred numbers. Each operation
takes torch some microseconds to start and a tenth of one to compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
#: The names of the operations and their codes in ``elementwise.h``.
NAMES = ("add", "sub", "mul", "div", "neg", "abs", "minimum", "maximum", "clamp", "copy", "where")
COMPARISONS, LOGICAL = ("eq", "ne", "lt", "le", "gt", "ge"), ("and", "or", "not")
CODES = {name: code for code, name in enumerate((*NAMES, *COMPARISONS, *LOGICAL, "float"))}
#: Operations of torch that take the same arguments as one of ``CODES``.
ALIKE = {
    **{getattr(aten, name): name for name in (*NAMES[:8], *COMPARISONS)},
    aten.logical_and: "and",
    aten.bitwise_and: "and",
    aten.logical_or: "or",
    aten.bitwise_or: "or",
    aten.logical_not: "not",
    aten.bitwise_not: "not",
}
OVERLOADS = {"default", "Tensor", "Scalar"}
#: The dtypes of the result and three arguments; ``NUMBERS`` for all other operations.
NUMBERS = (torch.float32,) * 4
TYPES = {
    **dict.fromkeys(COMPARISONS, (torch.bool, *NUMBERS[1:])),
    **dict.fromkeys(LOGICAL, (torch.bool,) * 4),
    "where": (torch.float32, torch.bool, *NUMBERS[2:]),
    "float": (torch.float32, *(torch.bool,) * 3),
}
#: Words of an operation: its code, rows, columns; address and two strides of the result and 3 arguments.
WORDS = 15


class Elementwise:
    """Collects consecutive operations.

    Args:
        code: the native library; None if there is none, which takes no operation.
    """

    def __init__(self, code: Any) -> None:
        self._code = code
        self._words: list[int] = []
        self._kept: list[torch.Tensor] = []

    def take(self, function: Any, inputs: tuple[Any, Any], output: Any) -> bool:
        """Add the operation ``output = function(*inputs[0], **inputs[1])``. Returns whether it is supported:
        one of ``CODES`` on float32 and bool tensors on the CPU.
        """
        named = _named(function, *inputs) if self._code is not None else None
        if named is None or not isinstance(output, torch.Tensor) or output.numel() == 0:
            return False
        name, arguments = named
        if name == "copy" and arguments[0].dtype == torch.bool:
            name = "float"
        types = TYPES.get(name, NUMBERS)
        operands = [output, *map(_tensor, arguments)]
        # The first argument, of whatever dtype, stands for missing ones.
        operands += [operands[1]] * (len(types) - len(operands))
        fits = zip(operands[: len(arguments) + 1], types, strict=False)
        if not all(each.dtype == dtype and _is_plain(each) for each, dtype in fits):
            return False
        shape = _folded(output.shape, [operand.expand(output.shape).stride() for operand in operands])
        if shape is None:
            return False
        sizes, strides = shape
        self._words += (CODES[name], *sizes)
        for operand, (row, column) in zip(operands, strides, strict=True):
            self._words += (operand.data_ptr(), row, column)
        self._kept += operands
        return True

    def end(self) -> list[Callable[[], object]]:
        """One call for all operations since the last ``end``; an empty list if there were none."""
        if not self._words:
            return []
        words, kept, function = torch.tensor(self._words), self._kept, self._code.spreeze_elementwise
        at, count = words.data_ptr(), len(words) // WORDS
        self._words, self._kept = [], []

        def done(memory: object = (words, kept)) -> None:
            function(at, count)

        return [done]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether native code can read a tensor by its address and strides."""
    return tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_neg()


def _tensor(argument: Any) -> torch.Tensor:
    """The argument, a number as a 0-d tensor."""
    return argument if isinstance(argument, torch.Tensor) else torch.tensor(argument, dtype=torch.float32)


def _named(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[str, list[Any]] | None:
    """The key of ``CODES`` for an operation and its arguments; None for any other operation."""
    packet, overload = function.overloadpacket, function._overloadname
    if function._schema.is_mutable and packet.__name__.endswith("_"):
        packet = getattr(aten, packet.__name__.removesuffix("_"), None)
    first = arguments[0] if arguments else None
    if not isinstance(first, torch.Tensor):
        return None
    if packet in (aten.clone, aten._to_copy):
        plain = set(keywords) <= {"dtype", "memory_format"}
        return ("copy", [first]) if plain else None
    if packet is aten.copy:
        return ("copy", [arguments[1]]) if len(arguments) == 2 else None
    if packet is aten.where and overload == "self":
        return "where", list(arguments)
    if packet is aten.masked_fill and overload in OVERLOADS:
        return "where", [arguments[1], arguments[2], first]
    if packet is aten.pow and overload == "Tensor_Scalar" and arguments[1] == 2:
        return "mul", [first, first]
    if packet is aten.clamp and overload == "default":
        bounds = {**dict(zip(("min", "max"), arguments[1:], strict=False)), **keywords}
        low, high = bounds.get("min"), bounds.get("max")
        return "clamp", [first, -math.inf if low is None else low, math.inf if high is None else high]
    if packet is aten.relu:
        return "clamp", [first, 0.0, math.inf]
    if overload not in OVERLOADS or len(arguments) > 2 or keywords.items() - {("alpha", 1)}:
        return None
    if packet is aten.rsub:
        return "sub", [arguments[1], first]
    return (ALIKE[packet], list(arguments)) if packet in ALIKE else None


def _folded(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, int], list[tuple[int, int]]] | None:
    """Merge dimensions to rows and columns: the two sizes, and the two strides of each operand; None if more
    dimensions remain.
    """
    sizes: list[int] = []
    steps: list[list[int]] = []
    for size, *along in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if sizes and all(outer == inner * size for outer, inner in zip(steps[-1], along, strict=True)):
            sizes[-1], steps[-1] = sizes[-1] * size, along
        else:
            sizes.append(size)
            steps.append(along)
    if len(sizes) > 2:
        return None
    missing = 2 - len(sizes)
    sizes = [1] * missing + sizes
    steps = [[0] * len(strides)] * missing + steps
    if missing == 2:
        steps[1] = [1] * len(strides)
    return (sizes[0], sizes[1]), list(zip(*steps, strict=True))
