"""Launch all kernels of a function as one CUDA graph: a launch costs more than most kernels of an update.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

from spreeze_zmq.device.taped import Taped
from spreeze_zmq.native import recording

#: Any, because torch's stubs lack much of it.
cuda: Any = torch.cuda

log = logging.getLogger("spreeze")

ResultT = TypeVar("ResultT")

#: Plain calls before the recording: libraries choose their kernels and allocate their memory in them.
WARM_UP_CALLS = 3


class Recorder(Protocol):
    """Records the kernels of a function so that they can be launched again."""

    def warm(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` where it will be recorded, so that it allocates its memory there."""

    def record(self, function: Callable[[], ResultT]) -> tuple[ResultT, Callable[[], None]]:
        """Record without computing: the result, whose memory each replay fills, and the replay.

        Raises:
            RuntimeError: the function does something that cannot be recorded.
        """


class CudaGraphs:
    """Records CUDA graphs on a separate stream.

    Args:
        device: a CUDA device.
        generators: random generators that the functions use; each replay advances them.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator]):
        self._device = device
        self._generators = generators
        self._stream = cuda.Stream(device)

    def warm(self, function: Callable[[], ResultT]) -> ResultT:
        """Call ``function`` on the recording stream, ordered after and before work of the current one."""
        current = cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with cuda.stream(self._stream):
            result = function()
        current.wait_stream(self._stream)
        return result

    def record(self, function: Callable[[], ResultT]) -> tuple[ResultT, Callable[[], None]]:
        """See :class:`Recorder`."""
        graph = cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # Other threads, such as those of a collective, may use the device during the capture.
        with cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return result, graph.replay


class _Refusals:
    """Hears why a function must not be recorded, before it is."""

    why = ""

    def note(self, step: Callable[[], object]) -> None:
        """A graph records the device's work alone."""

    def check(self, check: Callable[[], object]) -> None:
        """Likewise."""
        check()

    def refuse(self, why: str) -> None:
        """See :class:`spreeze_zmq.native.recording.Recording`."""
        self.why = why


class Captured(Generic[ResultT]):
    """A function of tensors, recorded at its fourth call with the same tensors and replayed from then on.

    The function must launch the same kernels at each call, on memory at fixed addresses; its Python code runs
    during the warm-up calls and the recording only. The warm-up calls are real ones, whose effects count. A
    call with other tensors starts over with warm-up calls. If recording fails, the function is called
    directly from then on, and the log says why.

    Args:
        function: takes tensors, or None, as positional arguments.
        recorder: records its kernels.
    """

    def __init__(self, function: Callable[..., ResultT], recorder: Recorder):
        self._function = function
        self._recorder: Recorder | None = recorder
        self._key: tuple[object, ...] = ()
        self._tensors: tuple[torch.Tensor | None, ...] = ()  # kept alive, so that no others get their memory
        self._calls = 0
        self._recorded: tuple[ResultT, Callable[[], None]] | None = None

    def __call__(self, *tensors: torch.Tensor | None) -> ResultT:
        """The function's result; the next call may overwrite it."""
        if self._recorder is None:
            return self._function(*tensors)
        key = tuple(None if t is None else (t.data_ptr(), t.shape, t.stride()) for t in tensors)
        if key != self._key:
            self._key, self._tensors, self._calls, self._recorded = key, tensors, 0, None
        self._calls += 1
        if self._calls <= WARM_UP_CALLS:
            heard = _Refusals()
            with recording.into(heard):
                result = self._recorder.warm(lambda: self._function(*tensors))
            if heard.why:
                log.info("updates are not recorded: the loss %s", heard.why)
                self._recorder = None
            return result
        if self._recorded is None and not self._record(self._recorder):
            return self._function(*tensors)
        assert self._recorded is not None
        result, replay = self._recorded
        replay()
        return result

    def _record(self, recorder: Recorder) -> bool:
        try:
            self._recorded = recorder.record(lambda: self._function(*self._tensors))
        except RuntimeError as error:
            log.warning("updates are launched kernel by kernel, no CUDA graph can be made: %s", error)
            self._recorder = None
        return self._recorded is not None


def captured(
    function: Callable[..., ResultT], device: torch.device, generators: Sequence[torch.Generator] = ()
) -> Callable[..., ResultT]:
    """``function`` recorded, on a GPU as a CUDA graph (:class:`Captured`), on a CPU on a tape
    (:class:`Taped`); itself where ``SPREEZE_NATIVE=0`` asks for torch alone, as for a debugger.
    """
    if device.type == "cpu" and os.environ.get("SPREEZE_NATIVE") != "0":
        return Taped(function)
    if device.type != "cuda":
        return function
    return Captured(function, CudaGraphs(device, generators))
