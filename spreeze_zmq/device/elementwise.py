"""Elementwise operations of a tape in a row, done by one native call with torch's own results.

Between its products an update adds, scales, compares and clips rows of a few hundred numbers: each takes
torch some microseconds to begin and a tenth of one to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spreeze_zmq.native.library import library

aten = torch.ops.aten
#: The names of the operations, and the numbers that ``elementwise.h`` knows them by.
NAMES = ("add", "sub", "mul", "div", "neg", "abs", "minimum", "maximum", "clamp", "copy", "where")
COMPARISONS, LOGICAL = ("eq", "ne", "lt", "le", "gt", "ge"), ("and", "or", "not")
CODES = {name: code for code, name in enumerate((*NAMES, *COMPARISONS, *LOGICAL, "float"))}
#: Operations of torch whose arguments are those of one of ``CODES``.
ALIKE = {
    aten.add: "add",
    aten.sub: "sub",
    aten.mul: "mul",
    aten.div: "div",
    aten.neg: "neg",
    aten.abs: "abs",
    aten.minimum: "minimum",
    aten.maximum: "maximum",
    aten.eq: "eq",
    aten.ne: "ne",
    aten.lt: "lt",
    aten.le: "le",
    aten.gt: "gt",
    aten.ge: "ge",
    aten.logical_and: "and",
    aten.bitwise_and: "and",
    aten.logical_or: "or",
    aten.bitwise_or: "or",
    aten.logical_not: "not",
    aten.bitwise_not: "not",
    aten.clone: "copy",
    aten._to_copy: "copy",
}
OVERLOADS = {"default", "Tensor", "Scalar"}
#: What the arguments of each are, and its result; of all others ``NUMBERS``.
NUMBERS = (torch.float32,) * 4
TYPES = {
    **dict.fromkeys(COMPARISONS, (torch.bool, *NUMBERS[1:])),
    **dict.fromkeys(LOGICAL, (torch.bool,) * 4),
    "where": (torch.float32, torch.bool, *NUMBERS[2:]),
    "float": (torch.float32, *(torch.bool,) * 3),
}
#: Of one operation: its code, rows and columns, and place and strides of the result and three arguments.
WORDS = 15


class Elementwise:
    """Operations in a row.

    Args:
        code: the native library, None where there is none: then nothing is taken.
    """

    def __init__(self, code: Any = None) -> None:
        self._code = code
        self._words: list[int] = []
        self._kept: list[torch.Tensor] = []

    @classmethod
    def here(cls) -> Elementwise:
        """By this machine's native library."""
        return cls(library().code)

    def take(self, function: Any, given: tuple[Any, Any], made: Any) -> bool:
        """Add an operation of torch, ``made = function(*given[0], **given[1])``, if it is one that is known,
        on float32 and bool on the CPU; whether it is.
        """
        meant = _meant(function, *given) if self._code is not None else None
        if meant is None or not isinstance(made, torch.Tensor) or made.numel() == 0:
            return False
        name, arguments = meant
        if name == "copy" and arguments[0].dtype == torch.bool:
            name = "float"
        types = TYPES.get(name, NUMBERS)
        operands = [made, *map(_tensor, arguments)]
        operands += [operands[1]] * (len(types) - len(operands))
        # What an operation does not take is its first argument again, of whatever type.
        fits = zip(operands[: len(arguments) + 1], types, strict=False)
        if not all(each.dtype == dtype and _is_plain(each) for each, dtype in fits):
            return False
        shape = _folded(made.shape, [operand.expand(made.shape).stride() for operand in operands])
        if shape is None:
            return False
        sizes, strides = shape
        self._words += (CODES[name], *sizes)
        for operand, (row, column) in zip(operands, strides, strict=True):
            self._words += (operand.data_ptr(), row, column)
        self._kept += operands
        return True

    def end(self) -> list[Callable[[], object]]:
        """One call that does all that was taken since the last end; none where nothing was."""
        if not self._words:
            return []
        words, kept, function = torch.tensor(self._words), self._kept, self._code.spreeze_elementwise
        at, count = words.data_ptr(), len(words) // WORDS
        self._words, self._kept = [], []

        def done(memory: object = (words, kept)) -> None:
            function(at, count)

        return [done]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers lie in this machine's memory as its strides say."""
    return tensor.is_cpu and tensor.layout == torch.strided and not tensor.is_neg()


def _tensor(argument: Any) -> torch.Tensor:
    """An argument itself, or a number in memory."""
    return argument if isinstance(argument, torch.Tensor) else torch.tensor(argument, dtype=torch.float32)


def _meant(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[str, list[Any]] | None:
    """A name of ``CODES`` and its arguments; None for what is none of them."""
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
    if overload not in OVERLOADS or len(arguments) > 2 or keywords.items() - {("alpha", 1)}:
        return None
    if packet is aten.rsub:
        return "sub", [arguments[1], first]
    return (ALIKE[packet], list(arguments)) if packet in ALIKE else None


def _folded(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, int], list[tuple[int, int]]] | None:
    """Rows and columns, and steps along both of each operand; None where there are more dimensions."""
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
