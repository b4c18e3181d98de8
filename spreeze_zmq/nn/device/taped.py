"""Replays a function from a tape, once two recordings have shown that every call does the same."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from spreeze_zmq.nn.device.beside import COMPARED, beside, next_due
from spreeze_zmq.nn.device.recorded import InputMemory, Recorded, Tensors
from spreeze_zmq.nn.device.tape import Operation, Tape, aten, memory_of, tensors_in
from spreeze_zmq.nn.device.watched import Watch

ResultT = TypeVar("ResultT")


class Taped(Recorded[ResultT, "_Course[ResultT]"]):
    """A function of tensors that is called directly once, recorded at its next two calls with tensors of the
    same shapes, and replayed from then on if both recordings are equal.

    Both must do the same operations with the same numbers from Python, on tensors that existed before or that
    the recording itself made. A function that does not, that gives Python a tensor's number, or that calls
    :func:`~spreeze_zmq.nn.native.recording.refuse`, is called directly from then on, and the log says why.
    So is one whose Python values cannot be compared before each replay (:class:`Watch`), or whose replay
    proves to differ from the call (:func:`beside`).

    Args:
        function: takes tensors, or None, as positional arguments.
        kept: tensors that native code may write to, by name; other tensors that the function writes to are
            found.
        name: of the function, for the log.
        ended: gets the reason when recording ends; functions that share it end together.
    """

    def __init__(
        self,
        function: Callable[..., ResultT],
        kept: Mapping[str, torch.Tensor] | None = None,
        name: str = "the loss",
        ended: list[str] | None = None,
    ) -> None:
        super().__init__(function, lambda: _Course(function, kept or {}), name, ended)


class _Course(Generic[ResultT]):
    """The calls with tensors of the same shapes. A replay draws every batch into the same tensors: then they
    are recorded themselves; otherwise copies of them.
    """

    def __init__(self, function: Callable[..., ResultT], kept: Mapping[str, torch.Tensor]) -> None:
        self._function, self._kept = function, kept
        self._place: InputMemory | None = None
        self._tensors: Tensors | None = None
        self._copies = False
        self._watch = Watch()
        self._first: _Trace | None
        self._tape: Tape | None
        self._steps: list[Callable[[], object]] | None
        self._start_over()
        self._result: ResultT
        self.refusal = ""

    @property
    def rests(self) -> bool:
        """Whether the refusal is one for some time."""
        return self._watch.resting

    def call(self, tensors: Tensors) -> ResultT:
        """Call the function, record it, or replay it."""
        if self._place is None:
            self._place = InputMemory(tensors)
            return self._function(*tensors)
        if self._tensors is None and self._place.has(tensors):
            self._tensors = tensors
        same = self._tensors is not None and all(map(operator.is_, self._tensors, tensors))
        if not same and not self._copies:
            self._tensors, self._copies = tuple(None if t is None else t.clone() for t in tensors), True
            self._start_over()
            self._watch = Watch()
        if self._steps is not None and not self._watch.holds():
            self._start_over()
            if self._watch.refusal:
                self.refusal = self._watch.refusal
                return self._function(*tensors)
        with torch.no_grad():
            if not same:
                for mine, new in zip(self._tensors or (), tensors, strict=True):
                    if mine is not None and new is not None:
                        mine.copy_(new)
            if self._steps is not None:
                self._replays += 1
                if self._replays == self._due:
                    return self._beside()
                for step in self._steps:
                    step()
                if self._watch.assigned:
                    self._watch.assign()
                return self._result
        return self._record()

    def _start_over(self) -> None:
        self._steps = self._tape = self._first = None
        self._replays, self._due = 0, COMPARED[0]

    def _replay(self) -> ResultT:
        for step in self._steps or ():
            step()
        self._watch.assign()
        return self._result

    def _beside(self) -> ResultT:
        """A plain call, and a comparison of the replay with it."""
        self._due = next_due(self._replays)
        assert self._first is not None
        assert self._tape is not None
        tensors, written = self._tensors or (), self._tape.written()
        found = [*self._watch.tensors, *self._first.existing(written)]
        read = {id(each) for each in tensors if not memory_of(each) & written}
        kept = {f"tensor {index}": each for index, each in enumerate(found) if id(each) not in read}
        device = next((each.device for each in tensors if each is not None), torch.device("cpu"))

        def plain() -> ResultT:
            with torch.enable_grad():
                return self._function(*tensors)

        result, difference = beside(self._replay, plain, {**self._kept, **kept}, device)
        if difference:
            self.refusal = f"is replayed wrongly, as replay {self._replays:,} shows: {difference}"
        return result

    def _record(self) -> ResultT:
        assert self._tensors is not None
        tape, tensors = Tape(), self._tensors
        result = self._watch.call(lambda: tape.record(lambda: self._function(*tensors)))
        watch = self._watch
        self.refusal = tape.refusal or watch.refusal
        if self.refusal:
            return result
        trace = _Trace(tape)
        if watch.ready and self._first is not None:
            self.refusal = self._first.differs(trace)
            if not self.refusal:
                self._tape, self._steps, self._result = tape, tape.steps(), result
                watch.assign()
        self._first = trace
        return result


class _Trace:
    """The operations of a tape in a form that can be compared with another tape's.

    A tensor is identified by the operation that allocated its memory, or by its address if it existed before;
    such tensors are kept alive, so that their addresses are not reused.
    """

    def __init__(self, tape: Tape) -> None:
        self._places = [operation.place for operation in tape.operations]
        self._allocated: dict[int, tuple[int, int]] = {}
        self._kept: list[torch.Tensor] = []
        with _disable_current_modes():
            self._signatures = [self._signature(*each) for each in enumerate(tape.operations)]

    def existing(self, memory: set[int]) -> list[torch.Tensor]:
        """The tensors that existed before the recording, of those in ``memory``."""
        return [tensor for tensor in self._kept if tensor.untyped_storage().data_ptr() in memory]

    def differs(self, other: _Trace) -> str:
        """The first difference in words; empty if only the numbers in tensors differ."""
        if len(self._signatures) != len(other._signatures):
            return f"does {len(self._signatures)} operations, and {len(other._signatures)} at another call"
        for mine, others, place in zip(self._signatures, other._signatures, other._places, strict=True):
            if mine != others:
                return f"gives {getattr(mine[0], '__name__', 'a step')} other arguments at each call{place}"
        return ""

    def _signature(self, count: int, operation: Operation) -> tuple[Any, ...]:
        """The function of an operation, its inputs, and the shapes of its outputs."""
        if operation.function is None:
            return (None,)
        is_constant = operation.function is aten.lift_fresh.default  # of Python's numbers, by torch.tensor
        inputs = (
            repr(operation.inputs[0][0].tolist()) if is_constant else tree_map(self._name, operation.inputs)
        )
        existing = set() if is_constant else memory_of(operation.inputs)
        for index, leaf in enumerate(tensors_in(operation.output)):
            address = leaf.untyped_storage().data_ptr()
            if address not in existing:
                self._allocated.setdefault(address, (count, index))
        return operation.function, inputs, [tuple(leaf.shape) for leaf in tensors_in(operation.output)]

    def _name(self, leaf: Any) -> Any:
        if isinstance(leaf, (float, complex)):
            return repr(leaf)  # NaN is no other number than NaN, and -0.0 is another than 0.0
        if not isinstance(leaf, torch.Tensor):
            return leaf
        address = leaf.untyped_storage().data_ptr()
        if address not in self._allocated:
            self._kept.append(leaf)
        return (
            self._allocated.get(address, address),
            leaf.storage_offset(),
            tuple(leaf.shape),
            leaf.stride(),
            leaf.dtype,
        )
