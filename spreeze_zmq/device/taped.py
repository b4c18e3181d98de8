"""Replays a function from a tape, once two recordings have shown that every call does the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from spreeze_zmq.device.tape import Operation, Tape, aten, memory_of, tensors_in

log = logging.getLogger("spreeze")

ResultT = TypeVar("ResultT")

#: Courses kept, each for batches of another shape; the oldest is dropped.
MOST_COURSES = 4


class Taped(Generic[ResultT]):
    """A function of tensors that is called directly once, recorded at its next two calls with tensors of the
    same shapes, and replayed from then on if both recordings are equal.

    Both must do the same operations with the same numbers from Python, on tensors that existed before or that
    the recording itself made. A function that does not, that gives Python a tensor's number, or that calls
    :func:`spreeze_zmq.native.recording.refuse`, is called directly from then on, and the log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
    """

    def __init__(self, function: Callable[..., ResultT]) -> None:
        self._function = function
        self._courses: dict[tuple[object, ...], _Course[ResultT]] = {}
        self._refused = False

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        modes: Any = torch._C
        if self._refused or modes._len_torch_dispatch_stack():
            return self._function(*tensors)
        key = tuple(None if t is None else (t.shape, t.stride(), t.dtype) for t in tensors)
        course = self._courses.get(key)
        if course is None:
            if len(self._courses) >= MOST_COURSES:
                del self._courses[next(iter(self._courses))]
            course = self._courses[key] = _Course(self._function)
        result = course.call(tensors)
        if course.refusal:
            self._refused = True
            self._courses.clear()
            log.info("updates are not recorded: the loss %s", course.refusal)
        return result


class _Course(Generic[ResultT]):
    """The calls with tensors of the same shapes."""

    def __init__(self, function: Callable[..., ResultT]) -> None:
        self._function = function
        self._tensors: tuple[torch.Tensor | None, ...] | None = None
        self._first: _Trace | None = None
        self._tape: Tape | None = None
        self._steps: list[Callable[[], object]] | None = None
        self._result: ResultT
        self.refusal = ""

    def call(self, tensors: tuple[torch.Tensor | None, ...]) -> ResultT:
        """Call the function, record it, or replay it."""
        if self._tensors is None:
            self._tensors = tuple(None if t is None else t.clone() for t in tensors)
            return self._function(*tensors)
        with torch.no_grad():
            for mine, new in zip(self._tensors, tensors, strict=True):
                if mine is not None and new is not None:
                    mine.copy_(new)
            if self._steps is not None:
                for step in self._steps:
                    step()
                return self._result
        return self._record()

    def _record(self) -> ResultT:
        assert self._tensors is not None
        tape, tensors = Tape(), self._tensors
        result = tape.record(lambda: self._function(*tensors))
        trace = _Trace(tape)
        self.refusal = tape.refusal or (self._first.differs(trace) if self._first is not None else "")
        if not self.refusal and self._first is not None:
            self._tape, self._steps, self._result = tape, tape.steps(), result
        self._first = trace
        return result


class _Trace:
    """The operations of a tape in a form that can be compared with another tape's.

    A tensor is identified by the operation that allocated its memory, or by its address if it existed before;
    such tensors are kept alive, so that their addresses are not reused.
    """

    def __init__(self, tape: Tape) -> None:
        self._allocated: dict[int, tuple[int, int]] = {}
        self._kept: list[torch.Tensor] = []
        with _disable_current_modes():
            self._signatures = [self._signature(*each) for each in enumerate(tape.operations)]

    def differs(self, other: _Trace) -> str:
        """The first difference in words; empty if only the numbers in tensors differ."""
        if len(self._signatures) != len(other._signatures):
            return f"does {len(self._signatures)} operations, and {len(other._signatures)} at another call"
        for mine, others in zip(self._signatures, other._signatures, strict=True):
            if mine != others:
                return f"gives {getattr(mine[0], '__name__', 'a step')} other arguments at each call"
        return ""

    def _signature(self, count: int, operation: Operation) -> tuple[Any, ...]:
        """The function of an operation, its inputs, and the shapes of its outputs."""
        if operation.function is None:
            return (None,)
        is_constant = operation.function is aten.lift_fresh.default  # of Python's numbers, by torch.tensor
        inputs = operation.inputs[0][0].tolist() if is_constant else tree_map(self._name, operation.inputs)
        existing = set() if is_constant else memory_of(operation.inputs)
        for index, leaf in enumerate(tensors_in(operation.output)):
            address = leaf.untyped_storage().data_ptr()
            if address not in existing:
                self._allocated.setdefault(address, (count, index))
        return operation.function, inputs, [tuple(leaf.shape) for leaf in tensors_in(operation.output)]

    def _name(self, leaf: Any) -> Any:
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
