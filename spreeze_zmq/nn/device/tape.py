"""An update recorded on a CPU, as a CUDA graph does it on a GPU.

At small batches a third of an update is Python and autograd. A tape keeps every operation of it with its
argument and result tensors; a replay repeats the operations on the same memory, without Python and autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from spreeze_zmq.nn.device.contents import is_strided
from spreeze_zmq.nn.device.elementwise import Elementwise
from spreeze_zmq.nn.native import recording
from spreeze_zmq.nn.native.library import library
from spreeze_zmq.nn.native.recording import place

ResultT = TypeVar("ResultT")

aten = torch.ops.aten
#: Operations that allocate memory and do not write it.
EMPTY = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
#: Operations that use only the shape of a tensor.
FILLED = {aten.ones_like, aten.zeros_like, aten.full_like, aten.new_zeros, aten.new_ones, aten.new_full}
#: Random operations, and those that draw the same numbers into existing memory.
DRAWN = {
    aten.randn: torch.Tensor.normal_,
    aten.randn_like: torch.Tensor.normal_,
    aten.rand: torch.Tensor.uniform_,
    aten.rand_like: torch.Tensor.uniform_,
}
COPIED = {aten._to_copy, aten.clone}
#: Tags of operations whose result may have another shape at the next call or is a number for Python.
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
INDEXED = {aten.index, aten.index_put, aten.index_put_}


class Operation(NamedTuple):
    """One operation of torch on a tape, or one step outside of torch.

    Attributes:
        function: torch's operation; None for a step.
        inputs: its arguments and keyword arguments.
        output: its result.
        step: what to call instead; None for an operation of torch.
        place: the line of the author's code that does it, for messages.
    """

    function: Any
    inputs: tuple[Any, Any]
    output: Any
    step: Callable[[], object] | None
    place: str = ""


class Tape(TorchDispatchMode, recording.Recording):  # type: ignore[no-untyped-call]
    """Inside, every operation runs and is recorded, also those of a backward pass.

    Attributes:
        operations: all of them in order.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled inside; true would import torch's compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record it."""
        output = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if not all(map(is_strided, tensors_in((args, kwargs, output)))):
            self.refuse("makes or reads a tensor that is not strided, as a sparse one")
        if packet in INDEXED:
            if any(leaf.dtype in (torch.bool, torch.uint8) for leaf in tensors_in(args[1])):
                self.refuse("indexes by a mask: torch.where keeps the shape")
        elif TAGS & set(func.tags):
            self.refuse(f"reads {packet.__name__} of a tensor, whose value Python may act on")
        self.operations.append(Operation(func, (args, kwargs or {}), output, None, place()))
        return output

    def each_time(self, step: Callable[[], object]) -> None:
        """See :class:`spreeze_zmq.nn.native.recording.Recording`."""
        self.operations.append(Operation(None, ((), {}), None, step))
        with _disable_current_modes():
            step()

    def record(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function``, which computes as usual, and record it."""
        with recording.into(self), self:
            result = function()
        if self.refusal:
            return result
        written = self.written()
        for operation in self.operations:
            if operation.function is aten.lift_fresh.default and memory_of(operation.inputs) & written:
                hint = "torch.full makes it anew each time"
                self.refuse(f"writes to what torch.tensor made of a number; {hint}", operation.place)
        return result

    def written(self) -> set[int]:
        """The addresses of all storages that its operations of torch write to."""
        return {each for operation in self.operations for each in memory_of(list(_written(operation)))}

    def steps(self) -> list[Callable[[], object]]:
        """What a replay calls in turn. The steps use the tape's memory: keep the tape as long as them."""
        written = self.written()
        steps: list[Callable[[], object]] = []
        elementwise = Elementwise(library().code)
        for operation in self.operations:
            if operation.step is None:
                if _is_constant(operation, written):
                    continue
                if elementwise.take(operation.function, operation.inputs, operation.output):
                    continue
            steps += (*elementwise.end(), operation.step or _repeated(operation))
        return [*steps, *elementwise.end()]


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors of nested lists, tuples and dicts, in order."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def memory_of(tree: Any) -> set[int]:
    """The addresses of the storages of its tensors."""
    return {leaf.untyped_storage().data_ptr() for leaf in tensors_in(tree)}


def _written(operation: Operation) -> Iterator[torch.Tensor]:
    """The arguments that an operation of torch writes to; none for a step."""
    if operation.function is None or not operation.function._schema.is_mutable:
        return
    arguments, keywords = operation.inputs
    for position, about in enumerate(operation.function._schema.arguments):
        if about.alias_info is not None and about.alias_info.is_write:
            named = keywords.get(about.name)
            yield from tensors_in(arguments[position] if position < len(arguments) else named)


def _is_constant(operation: Operation, written: set[int]) -> bool:
    """Whether a replay needs no repetition of an operation: it made a view, empty memory or a constant."""
    function = operation.function
    if function._schema.is_mutable:
        return False
    if function.overloadpacket in EMPTY:
        return True
    output, inputs = memory_of(operation.output), memory_of(operation.inputs)
    if not output or output <= inputs:
        return True
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    constant = not inputs or function.overloadpacket in FILLED
    return constant and not is_random and not output & written


def _repeated(operation: Operation) -> Callable[[], object]:
    """A function that repeats an operation on the same memory."""
    function, (arguments, keywords), output = operation.function, operation.inputs, operation.output
    if function._schema.is_mutable and all(each.alias_info is not None for each in function._schema.returns):
        return _bound(function, arguments, keywords)
    packet, outputs = function.overloadpacket, list(tensors_in(output))
    if packet in DRAWN and keywords.get("generator") is None:
        return _bound(DRAWN[packet], (output,), {})
    if packet in COPIED:
        return _bound(output.copy_, arguments[:1], {})
    into = None if _reduces(function, arguments, keywords) else _into(packet, function)
    if into is not None and len(into[1]) == len(outputs):
        return _bound(into[0], arguments, {**keywords, **dict(zip(into[1], outputs, strict=True))})

    def copied() -> None:
        for old, new in zip(outputs, tensors_in(function(*arguments, **keywords)), strict=True):
            old.copy_(new)

    return copied


def _bound(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Callable[[], object]:
    called = getattr(function, "_op", function)  # skips a layer in Python
    if not keywords:
        return lambda: called(*arguments)
    return lambda: called(*arguments, **keywords)


def _reduces(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Whether an operation is a reduced loss, whose variant into given memory returns a wrong shape."""
    names = [about.name for about in function._schema.arguments]
    if "reduction" not in names or function.overloadpacket.__name__.endswith("_backward"):
        return False
    return bool({**dict(zip(names, arguments, strict=False)), **keywords}.get("reduction", 1))


def _into(packet: Any, function: Any) -> tuple[Any, list[str]] | None:
    """The overload of an operation that writes into given tensors, and their names; None without one."""
    wanted = [(about.name, str(about.type)) for about in function._schema.arguments]
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = overload._schema.arguments
        outputs = [about.name for about in arguments if about.is_out and str(about.type) == "Tensor"]
        if outputs and [(a.name, str(a.type)) for a in arguments if not a.is_out] == wanted:
            return overload, outputs
    return None
