"""An update recorded on a CPU: what a CUDA graph is on a GPU.

At small batches a third of an update is Python and autograd. A tape notes every operation of it with the very
tensors that it took and gave; a replay does the same operations on the same memory, without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from spreeze_zmq.device.elementwise import Elementwise
from spreeze_zmq.native import recording

ResultT = TypeVar("ResultT")

aten = torch.ops.aten
#: These make memory and put nothing into it.
EMPTY = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
#: These take no more of a tensor than its shape.
FILLED = {aten.ones_like, aten.zeros_like, aten.full_like, aten.new_zeros, aten.new_ones, aten.new_full}
#: Random numbers as they are drawn into memory that is there.
DRAWN = {
    aten.randn: torch.Tensor.normal_,
    aten.randn_like: torch.Tensor.normal_,
    aten.rand: torch.Tensor.uniform_,
    aten.rand_like: torch.Tensor.uniform_,
}
COPIED = {aten._to_copy, aten.clone}
#: These give what a later call may have another shape of, or hand a number to Python.
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
INDEXED = {aten.index, aten.index_put, aten.index_put_}


class Operation(NamedTuple):
    """One operation of a tape, or one step that was noted by others.

    Attributes:
        function: of torch; None for a step.
        given: its arguments and keywords.
        made: what it returned.
        step: to be done again instead.
    """

    function: Any
    given: tuple[Any, Any]
    made: Any
    step: Callable[[], object] | None


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, every operation is done and noted, those of a backward pass too.

    Attributes:
        operations: in their order.
        refusal: why a replay would not be what the call is; empty where nothing speaks against it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.refusal = ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled inside; true would import torch's compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do it, and note it."""
        made = func(*args, **(kwargs or {}))
        packet = func.overloadpacket
        if packet in INDEXED:
            if any(leaf.dtype in (torch.bool, torch.uint8) for leaf in tensors_in(args[1])):
                self.refuse("indexes by a mask: torch.where keeps the shape")
        elif TAGS & set(func.tags):
            self.refuse(f"reads {packet.__name__} of a tensor, whose value Python may act on")
        self.operations.append(Operation(func, (args, kwargs or {}), made, None))
        return made

    def note(self, step: Callable[[], object]) -> None:
        """See :class:`spreeze_zmq.native.recording.Recording`."""
        self.operations.append(Operation(None, ((), {}), None, step))

    def check(self, check: Callable[[], object]) -> None:
        """See :class:`spreeze_zmq.native.recording.Recording`."""
        self.note(check)
        with _disable_current_modes():
            check()

    def refuse(self, why: str) -> None:
        """See :class:`spreeze_zmq.native.recording.Recording`."""
        self.refusal = self.refusal or why

    def record(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function``, which computes as it always does."""
        with recording.into(self), self:
            result = function()
        constants = (op.given for op in self.operations if op.function is aten.lift_fresh.default)
        if any(memory_of(given) & self._written() for given in constants):
            self.refuse("writes to what torch.tensor made of a number; torch.full makes it anew each time")
        return result

    def _written(self) -> set[int]:
        return {place for operation in self.operations for place in memory_of(list(_written(operation)))}

    def steps(self) -> list[Callable[[], object]]:
        """What a replay calls, in turn; their memory is the tape's, which must be kept as long."""
        written = self._written()
        steps: list[Callable[[], object]] = []
        together = Elementwise.here()
        for operation in self.operations:
            if operation.step is None:
                given = operation.function, operation.given, operation.made
                if _stays(operation, written) or together.take(*given):
                    continue
            steps += (*together.end(), operation.step or _again(operation))
        return [*steps, *together.end()]


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """All of them, in order."""
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def memory_of(tree: Any) -> set[int]:
    """Where the memory of its tensors begins."""
    return {leaf.untyped_storage().data_ptr() for leaf in tensors_in(tree)}


def _written(operation: Operation) -> Iterator[torch.Tensor]:
    """The arguments that an operation writes to."""
    if operation.function is None or not operation.function._schema.is_mutable:
        return
    arguments, keywords = operation.given
    for position, about in enumerate(operation.function._schema.arguments):
        if about.alias_info is not None and about.alias_info.is_write:
            named = keywords.get(about.name)
            yield from tensors_in(arguments[position] if position < len(arguments) else named)


def _stays(operation: Operation, written: set[int]) -> bool:
    """Whether what an operation made is the same without it: a view, memory, a constant."""
    function = operation.function
    if function._schema.is_mutable:
        return False
    if function.overloadpacket in EMPTY:
        return True
    made, taken = memory_of(operation.made), memory_of(operation.given)
    if not made or made <= taken:
        return True
    is_random = torch.Tag.nondeterministic_seeded in function.tags
    constant = not taken or function.overloadpacket in FILLED
    return constant and not is_random and not made & written


def _again(operation: Operation) -> Callable[[], object]:
    """What does an operation again on the same memory."""
    function, (arguments, keywords), made = operation.function, operation.given, operation.made
    if function._schema.is_mutable:
        return _bound(function, arguments, keywords)
    packet, outputs = function.overloadpacket, list(tensors_in(made))
    if packet in DRAWN and keywords.get("generator") is None:
        return _bound(DRAWN[packet], (made,), {})
    if packet in COPIED:
        return _bound(made.copy_, arguments[:1], {})
    into = None if _reduces(function, arguments, keywords) else _into(packet, function)
    if into is not None and len(into[1]) == len(outputs):
        return _bound(into[0], arguments, {**keywords, **dict(zip(into[1], outputs, strict=True))})

    def copied() -> None:
        for old, new in zip(outputs, tensors_in(function(*arguments, **keywords)), strict=True):
            old.copy_(new)

    return copied


def _bound(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Callable[[], object]:
    called = getattr(function, "_op", function)  # past a call in Python
    if not keywords:
        return lambda: called(*arguments)
    return lambda: called(*arguments, **keywords)


def _reduces(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> bool:
    """Whether it is a loss that reduces; torch's own version into memory gives it the shape from before."""
    names = [about.name for about in function._schema.arguments]
    if "reduction" not in names or function.overloadpacket.__name__.endswith("_backward"):
        return False
    return bool({**dict(zip(names, arguments, strict=False)), **keywords}.get("reduction", 1))


def _into(packet: Any, function: Any) -> tuple[Any, list[str]] | None:
    """The overload of an operation that writes into given tensors, and their names."""
    wanted = [(about.name, str(about.type)) for about in function._schema.arguments]
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = overload._schema.arguments
        outputs = [about.name for about in arguments if about.is_out]
        if outputs and [(a.name, str(a.type)) for a in arguments if not a.is_out] == wanted:
            return overload, outputs
    return None
